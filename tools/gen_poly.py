"""Coefficients of the kernels' polynomials, with their errors. Needs NumPy and SciPy.

    python3 tools/gen_poly.py

exp2: 2^f on [-1/2, 1/2] as 1 + c1 f + ... + cn f^n, the largest relative error minimal. The constant is
fixed to 1 so that 2^0 is exact, which the clamp in src/kernels/silu.c relies on. The coefficients are
rounded to float one by one, the later ones fitted anew after each.
"""
import numpy as np
from scipy.optimize import linprog


def fit(degree):
    """The largest relative error at 2001 points as a linear program, one coefficient fixed a round."""
    f = np.linspace(-0.5, 0.5, 2001)
    target = np.exp2(f)
    fixed = [1.0]
    while len(fixed) <= degree:
        powers = np.arange(len(fixed), degree + 1)
        a = f[:, None] ** powers / target[:, None]
        rest = 1 - np.polynomial.polynomial.polyval(f, fixed) / target
        ones = np.ones((len(f), 1))
        solved = linprog([0] * len(powers) + [1], np.block([[a, -ones], [-a, -ones]]),
                         np.concatenate([rest, -rest]), bounds=(None, None), method="highs",
                         options={"primal_feasibility_tolerance": 1e-10,
                                  "dual_feasibility_tolerance": 1e-10})
        fixed.append(float(np.float32(solved.x[0])))
    return fixed


def main():
    degree = 5
    c = fit(degree)
    f = np.linspace(-0.5, 0.5, 1000001)
    error = np.polynomial.polynomial.polyval(f, c) / np.exp2(f) - 1
    print(f"/* degree {degree}: relative error {np.abs(error).max():.1e} */")
    for p in range(1, degree + 1):
        print(f"#define EXP2_C{p} {np.float32(c[p]):.9g}f")


if __name__ == "__main__":
    main()
