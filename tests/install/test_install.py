"""Installs the build to a folder, moves it, and builds a stranger's program there in each supported way."""

import os
import shutil
import subprocess
from pathlib import Path

import pytest

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]
BUILD = Path(os.environ.get("PANTILE_BUILD", ROOT / "build"))
CC = os.environ.get("CC", "cc")


def run(*command, **env):
    done = subprocess.run([str(c) for c in command], capture_output=True, text=True,
                          env={**os.environ, **{name: str(value) for name, value in env.items()}})
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def prefix(tmp_path_factory):
    """An installed tree that was moved after installing: nothing in it may depend on its place."""
    base = tmp_path_factory.mktemp("install")
    run("cmake", "--install", BUILD, "--prefix", base / "first")
    shutil.move(base / "first", base / "moved here")
    return base / "moved here"


@pytest.fixture(scope="module")
def libdir(prefix):
    (config,) = prefix.rglob("pantile.pc")
    return config.parents[1]


@pytest.fixture(scope="module")
def version():
    defines = run(CC, "-dM", "-E", "-I", ROOT / "include", ROOT / "include/pantile/base.h")
    number = dict(line.split()[1:3] for line in defines.splitlines() if "PTL_VERSION_" in line)
    return ".".join(number[f"PTL_VERSION_{part}"] for part in ("MAJOR", "MINOR", "PATCH"))


def test_installed_files(prefix, libdir, version):
    headers = {p.name for p in (prefix / "include/pantile").iterdir()}
    assert headers == {p.name for p in (ROOT / "include/pantile").glob("*.h")}
    assert {p.name for p in libdir.glob("libpantile*")} == {
        "libpantile.a", "libpantile.so", "libpantile.so.0", f"libpantile.so.{version}"}
    assert os.access(prefix / "bin/pantile", os.X_OK)


def test_command_runs(prefix, version):
    assert version in run(prefix / "bin/pantile", "info")


@pytest.fixture(scope="module")
def consumers(prefix, tmp_path_factory):
    build = tmp_path_factory.mktemp("consumer")
    run("cmake", "-S", HERE, "-B", build, f"-DCMAKE_PREFIX_PATH={prefix}", f"-DCMAKE_C_COMPILER={CC}")
    run("cmake", "--build", build)
    return build


@pytest.mark.parametrize("kind", ["shared", "static"])
def test_find_package(consumers, version, kind):
    program = consumers / f"consumer_{kind}"
    assert run(program) == f"pantile {version}\n"
    assert ("libpantile.so.0" in run("readelf", "-d", program)) == (kind == "shared")


@pytest.mark.parametrize("wanted", ["0.2", "1"])
def test_find_package_refuses_other_versions(prefix, tmp_path, wanted):
    (tmp_path / "CMakeLists.txt").write_text(
        f"cmake_minimum_required(VERSION 3.18)\nproject(p LANGUAGES NONE)\nfind_package(pantile {wanted})\n"
        "if(pantile_FOUND)\nmessage(FATAL_ERROR found)\nendif()\n")
    run("cmake", "-S", tmp_path, "-B", tmp_path / "b", f"-DCMAKE_PREFIX_PATH={prefix}")


@pytest.mark.parametrize("kind", ["shared", "static"])
def test_pkg_config(prefix, libdir, version, kind, tmp_path):
    if not shutil.which("pkg-config"):
        pytest.skip("no pkg-config")
    env = {"PKG_CONFIG_PATH": libdir / "pkgconfig"}
    assert run("pkg-config", "--modversion", "pantile", **env) == f"{version}\n"
    static = ["-static"] if kind == "static" else []
    # The shell reads pkg-config's quoting, as a makefile would.
    flags = run("pkg-config", "--cflags", "--libs", *(["--static"] if static else []), "pantile", **env)
    run("sh", "-c", f'{CC} "$@" {flags}', "sh", HERE / "consumer.c", "-o", tmp_path / "consumer", *static,
        "-lm")
    assert run(tmp_path / "consumer", LD_LIBRARY_PATH=libdir) == f"pantile {version}\n"
