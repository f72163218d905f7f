"""What the built library promises a linker and a compiler: exported symbols, headers, portable objects."""

import os
import re
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
BUILD = Path(os.environ.get("PANTILE_BUILD", ROOT / "build"))
CC, CXX = os.environ.get("CC", "cc"), os.environ.get("CXX", "c++")
WARNINGS = ["-Wall", "-Wextra", "-Werror", "-pedantic"]
HEADERS = sorted((ROOT / "include" / "pantile").glob("*.h"))


def run(*command, **kwargs):
    done = subprocess.run([str(c) for c in command], capture_output=True, text=True, **kwargs)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def nm(*args):
    """(type, name) of each symbol."""
    rows = (line.split() for line in run("nm", *args).splitlines())
    return [tuple(row[-2:]) for row in rows if len(row) >= 2]


def test_exported_symbols():
    exported = sorted(" ".join(s) for s in nm("-D", "--defined-only", BUILD / "libpantile.so"))
    assert exported == (ROOT / "tests/abi/symbols.txt").read_text().splitlines()


def test_declared_functions_are_exported():
    text = "".join(h.read_text() for h in HEADERS)
    declared = set(re.findall(r"\bPTL_API\b[^;{]*?\b(ptl_\w+)\(", text))
    exported = {name.split("@")[0] for kind, name in nm("-D", "--defined-only", BUILD / "libpantile.so")}
    assert declared == exported - {"PTL_0.1"}


def test_soname():
    dynamic = run("readelf", "-d", BUILD / "libpantile.so")
    assert "soname: [libpantile.so.0]" in dynamic
    assert "RPATH" not in dynamic and "RUNPATH" not in dynamic


@pytest.mark.parametrize("header", HEADERS, ids=lambda h: h.name)
@pytest.mark.parametrize("language", ["c", "c++"])
def test_header_alone(header, language, tmp_path):
    compiler = [CC, "-std=c11"] if language == "c" else [CXX, "-std=c++11"]
    source = tmp_path / "alone.c"
    source.write_text(f"#include <pantile/{header.name}>\n" * 2)
    run(*compiler, "-x", language, *WARNINGS, "-I", ROOT / "include", "-fsyntax-only", source)


@pytest.mark.parametrize("level", ["scalar", "avx2", "avx512", "neon", "avx512bf16"])
def test_kernels_of_a_level_keep_to_it(level):
    """A global without the level's name could stand in for the same function of the base build, and carry
    instructions that the CPU does not have."""
    objects = sorted((BUILD / f"CMakeFiles/kernels_{level}.dir").rglob("*.o"))
    if not objects:
        pytest.skip(f"this build has no {level}")
    for kind, name in nm("--defined-only", "--extern-only", *objects):
        assert kind not in "TWVDRB" or name.endswith("_" + level), name


def test_base_objects_need_no_vector_extension():
    objects = sorted((BUILD / "CMakeFiles/pantile_core.dir").rglob("*.o"))
    assert objects
    assert not re.search(r"%[yz]mm", run("objdump", "-d", *objects))


def test_no_build_for_the_building_cpu():
    files = [ROOT / "CMakeLists.txt", ROOT / "Makefile", ROOT / ".ci" / "run", *(ROOT / "cmake").iterdir()]
    for file in files:
        assert "native" not in file.read_text(), file


def test_readme_snippet(tmp_path):
    """The first C block of README.md compiles and runs as it stands."""
    readme = ROOT / "README.md"
    if not readme.exists():
        pytest.skip("no README.md")
    snippet = re.search(r"^```c\n(.*?)^```", readme.read_text(), re.S | re.M)
    assert snippet, "README.md has no C block"
    source = tmp_path / "snippet.c"
    source.write_text(snippet.group(1))
    run(CC, "-std=c11", *WARNINGS, "-I", ROOT / "include", source, BUILD / "libpantile.a", "-pthread", "-lm",
        "-o", tmp_path / "snippet")
    run(tmp_path / "snippet")
