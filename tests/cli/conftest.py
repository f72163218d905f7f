"""The command under test: PANTILE_BIN, else `pantile` of the build folder. Not the place of any expectation."""

import os
import subprocess
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

ROOT = Path(__file__).resolve().parents[2]
BINARY = Path(os.environ.get("PANTILE_BIN") or Path(os.environ.get("PANTILE_BUILD", ROOT / "build")) / "pantile")


@pytest.fixture(scope="session", autouse=True)
def binary():
    if not BINARY.exists():
        pytest.fail(f"{BINARY} does not exist; build it, or name it with PANTILE_BIN")
    return BINARY.resolve()


@pytest.fixture
def pantile(binary, tmp_path):
    """pantile(*arguments, **environment) -> status, out, err; runs in tmp_path."""

    def run(*arguments, **environment):
        clean = {name: value for name, value in os.environ.items() if not name.startswith("PTL_")}
        done = subprocess.run([binary, *map(str, arguments)], cwd=tmp_path, env={**clean, **environment},
                              capture_output=True, text=True, timeout=300)
        return SimpleNamespace(status=done.returncode, out=done.stdout, err=done.stderr)

    return run


@pytest.fixture
def save(tmp_path):
    """save(name, array): the word name=@name.npy, and the file."""

    def write(name, array):
        np.save(tmp_path / f"{name}.npy", array)
        return f"{name}=@{name}.npy"

    return write


@pytest.fixture
def refused(pantile):
    """refused(sentence, *arguments): exit status 2, nothing on stdout, exactly this on stderr."""

    def check(sentence, *arguments, **environment):
        done = pantile(*arguments, **environment)
        assert (done.status, done.out, done.err) == (2, "", f"pantile: {sentence}\n")

    return check
