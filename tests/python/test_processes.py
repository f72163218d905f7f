"""Other processes: without torch, at another level, in an odd home, forked, from several threads."""

import os
import subprocess
import sys
import threading
from pathlib import Path

import numpy as np
import pantile
import pantile.torch as pt
import pytest
import torch
from conftest import ROOT

FORWARD = """
import numpy as np, pantile
x = np.ones((3, 1, 2), np.float32)
print(pantile.info()["level"], pantile.hstu_forward(x, x, x, [0, 3], scaling_seqlen=4)[2, 0, 0])
"""
RESULT = f"{3 * 2 / (1 + np.exp(-2)) / 4:.6f}"


def run(program, **env):
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=120,
                          env={**os.environ, "PYTHONPATH": str(ROOT / "python"), **env})
    assert done.returncode == 0, done.stderr
    return done.stdout.split()


def test_without_torch():
    _, value = run(f"import sys; sys.modules['torch'] = None\n{FORWARD}assert 'pantile.torch' not in sys.modules")
    assert value[:6] == RESULT[:6]


@pytest.mark.parametrize("level", pantile.info()["levels"])
def test_level(level):
    assert run(FORWARD, PTL_CPU=level)[0] == level


def test_a_level_that_is_none():
    done = subprocess.run([sys.executable, "-c", FORWARD], capture_output=True, text=True,
                          env={**os.environ, "PYTHONPATH": str(ROOT / "python"), "PTL_CPU": "z80"})
    assert "pantile.Error: " in done.stderr and "z80" in done.stderr


def test_home_that_cannot_be_written(tmp_path):
    tmp_path.chmod(0o500)
    run("import torch, pantile.torch as pt\n" + FORWARD, HOME=str(tmp_path), TMPDIR="/nonexistent")
    assert not list(tmp_path.iterdir())


def test_a_folder_without_libraries(tmp_path):
    done = subprocess.run([sys.executable, "-c", "import pantile"], capture_output=True, text=True,
                          env={**os.environ, "PYTHONPATH": str(ROOT / "python"), "PANTILE_LIBRARY_DIR": str(tmp_path)})
    assert f"ImportError: pantile: {tmp_path}/libpantile.so does not exist" in done.stderr


class Attended(torch.utils.data.Dataset):
    """Items that workers compute with the library."""

    def __init__(self):
        self.x = torch.randn(64, 2, 8)

    def __len__(self):
        return 6

    def __getitem__(self, i):
        offsets = torch.tensor([0, 64])
        return (pt.hstu_attention(self.x, self.x, self.x, offsets, scaling_seqlen=64 + i),
                torch.from_numpy(pantile.hstu_forward(self.x, self.x, self.x, offsets, scaling_seqlen=64 + i)))


def test_forked_workers_after_the_pool_has_run():
    x = torch.randn(2000, 2, 32)
    pantile.hstu_forward(x, x, x, [0, 2000], scaling_seqlen=64)
    pt.hstu_attention(x, x, x, torch.tensor([0, 2000]), scaling_seqlen=64)
    data = Attended()
    loader = torch.utils.data.DataLoader(data, batch_size=1, num_workers=2, multiprocessing_context="fork", timeout=60)
    for i, (by_torch, by_numpy) in enumerate(loader):
        assert torch.equal(by_torch, by_numpy) and torch.equal(by_torch[0], data[i][0])


def test_calling_threads():
    x = torch.randn(200, 2, 16)
    offsets = torch.tensor([0, 150, 200])
    expected = pt.hstu_attention(x, x, x, offsets, scaling_seqlen=64)
    wrong = []

    def work():
        for _ in range(20):
            if not torch.equal(pt.hstu_attention(x, x, x, offsets, scaling_seqlen=64), expected):
                wrong.append("torch")
            if not np.array_equal(pantile.hstu_forward(x, x, x, offsets, scaling_seqlen=64), expected.numpy()):
                wrong.append("numpy")

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong


def test_command():
    printed = run("import sys; sys.argv = ['pantile', 'info']; from pantile.__main__ import main; main()")
    assert printed[:2] == ["pantile", pantile.__version__]


def test_package_is_typed():
    assert (Path(pantile.__file__).parent / "py.typed").exists()
