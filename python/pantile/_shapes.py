"""Shapes of what the jagged functions make. For anything that has a shape."""

from __future__ import annotations

from typing import Any


def row(x: Any, offsets: Any) -> tuple:
    """Shape of a row of x: [T, ...] with offsets, [B, n, ...] without."""
    return tuple(x.shape[1:] if offsets is not None else x.shape[2:])


def rows(x: Any, offsets: Any) -> int:
    """Rows that x has room for."""
    return x.shape[0] if offsets is not None else x.shape[0] * x.shape[1]


def n_sequences(x: Any, offsets: Any) -> int:
    return x.shape[0] if offsets is None else offsets.shape[0] - 1


def split(left_offsets: Any, right_offsets: Any, n_left: int | None, n_right: int | None) -> list[tuple]:
    """Leading extents of the two sides of jagged_split."""
    n_sequences = len(left_offsets if left_offsets is not None else right_offsets) - 1
    return [(n_sequences, n) if offsets is None else (int(offsets[-1]) if n is None else n,)
            for offsets, n in ((left_offsets, n_left), (right_offsets, n_right))]
