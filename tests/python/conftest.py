"""The package under test: python/ with the libraries of the build folder PANTILE_BUILD."""

import os
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
os.environ.setdefault("PANTILE_LIBRARY_DIR", os.environ.get("PANTILE_BUILD", str(ROOT / "build")))
os.environ.setdefault("HYPOTHESIS_STORAGE_DIRECTORY", str(ROOT / "build/hypothesis"))
sys.path[:0] = [str(ROOT / "python"), str(ROOT / "tests/cli")]  # tests/cli has the operator in NumPy

import pytest  # noqa: E402
import torch  # noqa: E402


@pytest.fixture(autouse=True)
def seed():
    torch.manual_seed(0)
