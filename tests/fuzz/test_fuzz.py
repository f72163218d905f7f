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
TARGETS = ["fuzz_npy", "fuzz_line"]
SOURCES = [f"cli/{name}.c" for name in ("npy", "problem", "problem_bias", "problem_line", "problem_memory",
                                        "problem_nsa", "problem_nsa_line", "problem_pages", "random", "seq_numbers",
                                        "words")] + ["ref/elements.c"]


def has_sanitizers(compiler, sanitizers, folder):
    empty = folder / "empty.c"
    empty.write_text("int LLVMFuzzerTestOneInput(void);\nint LLVMFuzzerTestOneInput(void) { return 0; }\n"
                     if "fuzzer" in sanitizers else "int main(void) { return 0; }\n")
    command = [compiler, f"-fsanitize={sanitizers}", empty, "-o", folder / "empty"]
    return subprocess.run(command, capture_output=True).returncode == 0


def build(compiler, sanitizers, name, sources, folder):
    program = folder / name
    done = subprocess.run([compiler, *FLAGS, f"-fsanitize={sanitizers}", f"-I{ROOT / 'include'}", f"-I{ROOT / 'cli'}",
                           *(ROOT / source for source in sources), BUILD / "libpantile.a", "-lm", "-pthread", "-o",
                           program], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return program


@pytest.mark.parametrize("target", TARGETS)
def test_mutated_seeds(target, tmp_path):
    if not has_sanitizers(CC, "address,undefined", tmp_path):
        pytest.skip(f"{CC} has no address and undefined sanitizers")
    sources = [f"tests/fuzz/{target}.c", "tests/fuzz/fuzz_main.c", *SOURCES]
    program = build(CC, "address,undefined", target, sources, tmp_path)
    done = subprocess.run([program, "-n", "20000"], capture_output=True, text=True, timeout=600)
    assert done.returncode == 0, done.stderr
    assert done.stdout.endswith(" seeds, 20000 mutations\n")


@pytest.mark.parametrize("target", TARGETS)
def test_libfuzzer(target, tmp_path):
    clang = shutil.which("clang")
    if not clang or not has_sanitizers(clang, "fuzzer,address,undefined", tmp_path):
        pytest.skip("no clang with libFuzzer")
    program = build(clang, "fuzzer,address,undefined", target, [f"tests/fuzz/{target}.c", *SOURCES], tmp_path)
    done = subprocess.run([program, "-max_total_time=10", "-max_len=4096", "-seed=1", "-timeout=10"], cwd=tmp_path,
                          capture_output=True, text=True, timeout=600)
    assert done.returncode == 0, done.stderr[-4000:]
