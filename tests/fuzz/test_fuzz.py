"""Builds the fuzz targets with sanitizers and runs their mutated seeds; under clang also libFuzzer for a moment.

By hand, with libFuzzer for as long as one likes:

    clang -g -O1 -fsanitize=fuzzer,address,undefined -Iinclude -Icli tests/fuzz/fuzz_npy.c <the sources below> -lm
"""

import os
import shutil
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
BUILD = Path(os.environ.get("PANTILE_BUILD", ROOT / "build"))
CC = os.environ.get("CC", "cc")
FLAGS = ["-std=gnu11", "-g", "-O1", "-Wall", "-Wextra", "-Werror", "-fno-sanitize-recover=all"]
SOURCES = ["cli/npy.c", "cli/problem.c", "cli/problem_line.c", "cli/problem_memory.c", "cli/random.c", "cli/words.c"]


def build(compiler, sanitizers, name, sources, folder):
    """The program, or None when this compiler has no such sanitizers."""
    program = folder / name
    include = [f"-I{ROOT / 'include'}", f"-I{ROOT / 'cli'}"]
    probe = folder / "probe.c"
    main = "" if "fuzzer" not in sanitizers else "int LLVMFuzzerTestOneInput(const char *p, long n);\n"
    body = "int main(void) { return 0; }" if not main else "int LLVMFuzzerTestOneInput(const char *p, long n) { (void)p; (void)n; return 0; }"
    probe.write_text(main + body + "\n")
    if subprocess.run([compiler, f"-fsanitize={sanitizers}", probe, "-o", folder / "probe"], capture_output=True).returncode:
        return None
    done = subprocess.run([compiler, *FLAGS, f"-fsanitize={sanitizers}", *include, *(ROOT / s for s in sources),
                           BUILD / "libpantile.a", "-lm", "-pthread", "-o", program], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return program


@pytest.mark.parametrize("target", ["fuzz_npy", "fuzz_line"])
def test_mutated_seeds(target, tmp_path):
    sources = [f"tests/fuzz/{target}.c", "tests/fuzz/fuzz_main.c", *SOURCES]
    program = build(CC, "address,undefined", target, sources, tmp_path)
    if not program:
        pytest.skip(f"{CC} has no address and undefined sanitizers")
    done = subprocess.run([program, "-n", "20000"], capture_output=True, text=True, timeout=600)
    assert done.returncode == 0, done.stderr
    assert done.stdout.endswith(" seeds, 20000 mutations\n")


@pytest.mark.parametrize("target", ["fuzz_npy", "fuzz_line"])
def test_libfuzzer(target, tmp_path):
    clang = shutil.which("clang")
    program = clang and build(clang, "fuzzer,address,undefined", target, [f"tests/fuzz/{target}.c", *SOURCES], tmp_path)
    if not program:
        pytest.skip("no clang with libFuzzer")
    done = subprocess.run([program, "-max_total_time=10", "-max_len=4096", "-seed=1", "-timeout=10"], cwd=tmp_path,
                          capture_output=True, text=True, timeout=600)
    assert done.returncode == 0, done.stderr[-4000:]
