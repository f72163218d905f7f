"""Who checks the contenders: reference.py against the formulas written once more, and against mistakes."""

import numpy as np
import pytest

from cases import Hstu, Nsa
from reference import hstu_error, nsa_error

HSTU = [Hstu("plain", 2, 3, 2, (4, 6), (4, 6)), Hstu("delta", 1, 3, 3, (2,), (5,)),
        Hstu("targets", 2, 3, 3, (6,), (6,), targets=2), Hstu("full", 1, 3, 3, (5,), (3,), full=True)]
STEP = Hstu("step", 2, 3, 2, (3, 2), (3, 2), backward=True)


def slices(lengths):
    ends = np.cumsum(lengths)
    return [slice(end - n, end) for n, end in zip(lengths, ends)]


def hstu_out(case, q, k, v):
    out = np.zeros((len(q), case.heads, case.dv))
    for b, (rows, keys) in enumerate(zip(slices(case.lengths_q), slices(case.lengths_k))):
        for i in range(case.lengths_q[b]):
            for j in np.flatnonzero(case.valid(b, [i], np.arange(case.lengths_k[b]))[0]):
                for h in range(case.heads):
                    s = case.alpha * q[rows.start + i, h] @ k[keys.start + j, h]
                    out[rows.start + i, h] += s / (1 + np.exp(-s)) * v[keys.start + j, h] / case.n
    return out


@pytest.mark.parametrize("case", HSTU, ids=lambda case: case.name)
def test_hstu_error(case):
    x = case.inputs()
    out = hstu_out(case, *(x[name].astype(float) for name in "qkv"))
    assert hstu_error(case, x, dict(out=out)) < 1e-12
    for place in np.ndindex(out.shape):
        wrong = out.copy()
        wrong[place] += 0.01 * np.abs(out).max()
        assert hstu_error(case, x, dict(out=wrong)) == pytest.approx(0.01, rel=1e-6)


def test_hstu_error_sees_nan():
    x = HSTU[0].inputs()
    out = hstu_out(HSTU[0], *(x[name].astype(float) for name in "qkv"))
    out[1, 0, 0] = np.nan
    assert hstu_error(HSTU[0], x, dict(out=out)) == np.inf


def numeric_gradients(case, x):
    """Central differences of sum(dout * out)."""
    x = {name: array.astype(float) for name, array in x.items()}
    gradients = {}
    for name in "qkv":
        gradient = np.zeros_like(x[name])
        for place in np.ndindex(gradient.shape):
            ends = []
            for step in (1e-5, -1e-5):
                moved = {**x, name: x[name].copy()}
                moved[name][place] += step
                ends.append((x["dout"] * hstu_out(case, *(moved[name] for name in "qkv"))).sum())
            gradient[place] = (ends[0] - ends[1]) / 2e-5
        gradients["d" + name] = gradient
    return gradients


def test_hstu_error_of_gradients():
    x = STEP.inputs()
    results = dict(out=hstu_out(STEP, *(x[name].astype(float) for name in "qkv"))) | numeric_gradients(STEP, x)
    assert hstu_error(STEP, x, results) < 1e-7
    for name in ("dq", "dk", "dv"):
        wrong = results[name].copy()
        wrong[2, 1, 1] += 0.01 * np.abs(wrong).max()
        assert hstu_error(STEP, x, {**results, name: wrong}) == pytest.approx(0.01, rel=1e-3)


def test_hstu_error_of_softmax_skips_rows_that_see_nothing():
    case = Hstu("", 1, 3, 3, (4,), (2,))  # the first two rows see no key
    x = case.inputs()
    q, k, v = (x[name][:, 0].astype(float) for name in "qkv")
    out = np.full((4, 1, 3), np.nan)
    for i, keys in ((2, 1), (3, 2)):
        weights = np.exp(case.alpha * k[:keys] @ q[i])
        out[i, 0] = weights @ v[:keys] / weights.sum()
    assert hstu_error(case, x, dict(out=out), softmax_instead=True) < 1e-12


# ---- NSA -----------------------------------------------------------------------------------------

NSA = Nsa("", 2000, 2, 2, 1, 4, 3)


def attention(q, k, v):
    weights = np.exp(q @ k.T / np.sqrt(k.shape[1]))
    weights /= weights.sum(-1, keepdims=True)
    return weights, weights @ v


def nsa_row(case, x, i, choose):
    """Output and blocks of row i; choose(importance of the blocks that are not forced) gives some of them."""
    t = case.s - case.sq + i
    q, k, v, kc, vc = (x[name][0].astype(float) for name in ("q", "k", "v", "kc", "vc"))
    n, own = (t + 1 - case.block) // case.stride + 1, t // case.select_block
    p, compressed = attention(q[i], kc[:n, 0], vc[:n, 0])
    score = np.zeros(own + 1)
    for c in range(n):  # each of the two halves of a compressed block counts where it lies
        for half in (c, c + 1):
            if half * case.stride // case.select_block <= own:
                score[half * case.stride // case.select_block] += p[:, c].sum()
    forced = [0, own - 1, own]
    blocks = sorted(forced + choose({j: score[j] for j in range(own + 1) if j not in forced}))
    selected = [token for j in blocks for token in range(64 * j, min(64 * (j + 1), t + 1))]
    window = slice(t + 1 - case.window, t + 1)
    branches = compressed, *(attention(q[i], k[seen, 0], v[seen, 0])[1] for seen in (selected, window))
    return sum(x["gates"][0, i, :, b, None] * branch for b, branch in enumerate(branches)), blocks


def nsa_results(case, x, choose):
    rows = [nsa_row(case, x, i, choose) for i in range(case.sq)]
    return dict(out=np.array([[out for out, _ in rows]]), idx=np.array([[[blocks] for _, blocks in rows]]))


def best(scores):
    return sorted(scores, key=scores.get)[-(NSA.topk - 3):]


def one_wrong(scores):
    ordered = sorted(scores, key=scores.get)
    return [ordered[0]] + ordered[-(NSA.topk - 4):]


def test_nsa_error():
    x = NSA.inputs()
    results = nsa_results(NSA, x, best)
    assert nsa_error(NSA, x, results) < 1e-6
    results["out"][0, 1, 0, 2] += 0.01 * np.abs(results["out"]).max()
    assert nsa_error(NSA, x, results) > 0.005


def test_nsa_error_sees_a_wrong_selection():
    """Though the output belongs to the blocks that were taken."""
    x = NSA.inputs()
    assert 0.05 < nsa_error(NSA, x, nsa_results(NSA, x, one_wrong)) < np.inf


@pytest.mark.parametrize("change", [lambda idx: idx[idx != 0], lambda idx: np.append(idx[:-1], idx[0]),
                                    lambda idx: idx[:-1]], ids=["forced one left out", "a block twice", "one too few"])
def test_nsa_error_sees_a_selection_that_none_may_make(change):
    x = NSA.inputs()
    results = nsa_results(NSA, x, best)
    idx = np.full_like(results["idx"], -1)
    for i in range(NSA.sq):
        blocks = change(results["idx"][0, i, 0])
        idx[0, i, 0, :len(blocks)] = blocks
    assert nsa_error(NSA, x, {**results, "idx": idx}) == np.inf


def test_nsa_error_of_full_attention():
    case = Nsa("", 300, 1, 2, 1, 4, 3)
    x = case.inputs()
    out = attention(x["q"][0, 0].astype(float), x["k"][0, :, 0].astype(float), x["v"][0, :, 0].astype(float))[1]
    assert nsa_error(case, x, dict(out=out[None, None]), full=True) < 1e-12
