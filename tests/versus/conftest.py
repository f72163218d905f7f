"""bench/versus as modules, and lines of results made by hand. Nothing is timed here, and no torch is needed."""

import json
import os
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "bench/versus"))


@pytest.fixture(scope="session")
def command():
    """The command of the build folder."""
    return Path(os.environ.get("PANTILE_BUILD", ROOT / "build")).resolve() / "pantile"


class Lines:
    """A file of versus.py, line by line. Times are in seconds."""

    def __init__(self, path):
        self.path = path
        self.machine()

    def add(self, kind, **fields):
        with self.path.open("a") as f:
            print(json.dumps(dict(kind=kind, **fields)), file=f)

    def machine(self, cpu="some CPU"):
        probe = dict(peak_gflops=100.0, read_gbps=20.0, copy_gbps=15.0)
        self.add("machine", cpu=cpu, levels="scalar avx2", level="avx2", threads=2, system="Linux", date="2026-11-30",
                 versions=dict(python="3.11", pantile="0.1.0", torch="2.13.0"), probes={"1": probe, "2": probe})

    def case(self, name, family="hstu", dtype="f32", backward=False, **seconds):
        """seconds: of each contender's turns, default allocator; a number or a list of them."""
        self.add("case", case=name, family=family, dtype=dtype, backward=backward, flops=dict.fromkeys(
            ["pantile", "eager", "compiled", "openblas", "sdpa", "nsa_eager", "nsa_compiled", "full_sdpa"], 10**9))
        for contender, times in seconds.items():
            self.check(name, contender)
            for time in times if isinstance(times, list) else [times]:
                self.turn(name, contender, time)

    def check(self, case, contender, allocator="default", extra_bytes=0):
        self.add("check", case=case, contender=contender, allocator=allocator, first_s=0.1, bound=1e-4, error=2e-7,
                 extra_bytes=extra_bytes)

    def turn(self, case, contender, time, allocator="default", counts=True):
        self.add("turn", case=case, contender=contender, allocator=allocator, counts=counts, canary=[1.0, 1.0],
                 min=time, median=1.5 * time, calls=3)

    def failure(self, case, contender, reason, allocator="default"):
        self.add("failure", case=case, contender=contender, allocator=allocator, reason=reason)


@pytest.fixture
def lines(tmp_path):
    return Lines(tmp_path / "versus.jsonl")


@pytest.fixture
def sketches(monkeypatch):
    """Figures are made, but not drawn: that takes half a second each."""
    import plots

    def save(figure, path):
        path.write_bytes(b"a figure")
        plots.plt.close(figure)

    monkeypatch.setattr(plots, "save", save)
