"""The wheel: what is in it, what auditwheel says, and that it works in an environment of its own."""

import os
import subprocess
import sys
import zipfile

import pantile
import pytest
from conftest import ROOT

PROGRAM = """
import numpy as np, pantile
x = np.ones((3, 1, 2), np.float32)
assert abs(pantile.hstu_forward(x, x, x, [0, 3], scaling_seqlen=4)[2, 0, 0] - 1.3211956) < 1e-6
assert "site-packages" in pantile.__file__, pantile.__file__
try:
    import pantile.torch
except ModuleNotFoundError as absent:
    assert absent.name == "torch"
"""


def run(*command, **kwargs):
    # Nothing of this checkout or of the tests' environment.
    env = {name: value for name, value in os.environ.items() if name not in ("PYTHONPATH", "PANTILE_LIBRARY_DIR")}
    env["CMAKE_BUILD_PARALLEL_LEVEL"] = str(os.cpu_count())
    done = subprocess.run([str(c) for c in command], capture_output=True, text=True, env=env, **kwargs)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def wheel(tmp_path_factory):
    folder = tmp_path_factory.mktemp("wheel")
    run(sys.executable, "-m", "pip", "wheel", "-q", "--no-deps", "--no-build-isolation", "--disable-pip-version-check",
        "-w", folder, f"-Cbuild-dir={ROOT}/build/wheel", ROOT)
    (file,) = folder.iterdir()
    return file


def test_contents(wheel):
    assert wheel.name.startswith(f"pantile-{pantile.__version__}-py3-none-linux_")
    with zipfile.ZipFile(wheel) as files:
        names = [name for name in files.namelist() if ".dist-info/" not in name]
        assert not [info.filename for info in files.infolist() if (info.external_attr >> 28) == 0xA], "symbolic links"
    sources = {str(path.relative_to(ROOT / "python")) for path in (ROOT / "python/pantile").rglob("*.py")}
    assert set(names) == sources | {"pantile/py.typed", "pantile/libpantile.so", "pantile/libpantile_torch.so",
                                    "pantile/bin/pantile"}


def test_auditwheel(wheel):
    printed = run(sys.executable, "-m", "auditwheel", "show", wheel).replace("\n", " ")
    assert "is consistent with the following platform tag: \"manylinux" in printed
    assert "libgomp" not in printed and "libstdc++" not in printed


def test_clean_environment(wheel, tmp_path):
    run(sys.executable, "-m", "venv", tmp_path / "venv")
    python = tmp_path / "venv/bin/python"
    run(python, "-m", "pip", "install", "-q", "--disable-pip-version-check", wheel)
    run(python, "-c", PROGRAM, cwd=tmp_path)
    assert run(tmp_path / "venv/bin/pantile", "info", cwd=tmp_path).startswith(f"pantile {pantile.__version__}\n")
    assert run(python, "-m", "pantile", "info", cwd=tmp_path).startswith(f"pantile {pantile.__version__}\n")
