"""Jagged arrays on tensors: the functions of pantile._numpy, differentiable in their values.

Every operation is linear; the gradient of each is another one (docs/jagged.md).
"""

from __future__ import annotations

from typing import Any

import torch

from .. import _shapes
from .._library import word
from .._numpy import ALIGN, POSITION_TIME_WORDS
from ._autograd import differentiable

_ops = torch.ops.pantile
_END = ALIGN.index("end")

Gradients = dict[str, torch.Tensor]


def _given(**arguments: Any) -> dict[str, Any]:
    return {name: value for name, value in arguments.items() if value is not None}


def _zeros(like: torch.Tensor, shape: torch.Size, offsets: torch.Tensor | None) -> torch.Tensor:
    """Zeros of a jagged or padded shape, in the memory of one row."""
    leading = 1 if offsets is not None else 2
    return like.new_zeros(shape[leading:]).expand(shape)


def _resize_backward(a: dict[str, Any], needs: Any, dout: torch.Tensor) -> Gradients:
    return {"x": _ops._jagged_resize.default(dout.contiguous(), a["x"], align=a.get("align", 0),
                                             x_offsets=a.get("out_offsets"), out_offsets=a.get("x_offsets"))}


def _concat_backward(a: dict[str, Any], needs: Any, dout: torch.Tensor) -> Gradients:
    left, right = _ops._jagged_split.default(dout.contiguous(), a["left"], a["right"], a.get("n_prefix", 0),
                                             a.get("left_offsets"), a.get("right_offsets"))
    return {"left": left, "right": right}


def _split_backward(a: dict[str, Any], needs: Any, dleft: torch.Tensor, dright: torch.Tensor) -> Gradients:
    return {"x": _ops._jagged_concat.default(dleft.contiguous(), dright.contiguous(), a["x"],
                                             left_offsets=a.get("left_offsets"), n_prefix=a.get("n_prefix", 0),
                                             right_offsets=a.get("right_offsets"))}


def _replace_last_backward(a: dict[str, Any], needs: Any, dout: torch.Tensor) -> Gradients:
    dout, x_offsets, last_offsets = dout.contiguous(), a["x_offsets"], a.get("last_offsets")
    last = _zeros(dout, a["last"], last_offsets)
    return {"x": _ops._jagged_replace_last.default(dout, last, x_offsets, last_offsets),
            "last": _ops._jagged_resize.default(dout, a["last"], align=_END, x_offsets=x_offsets,
                                                out_offsets=last_offsets)}


def _broadcast_add_backward(a: dict[str, Any], needs: Any, dout: torch.Tensor) -> Gradients:
    return {"x": dout, "d": _ops._jagged_sum.default(dout.contiguous(), a["d"], a.get("x_offsets"))}


def _sum_backward(a: dict[str, Any], needs: Any, dout: torch.Tensor) -> Gradients:
    x_offsets = a.get("x_offsets")
    return {"x": _ops._jagged_broadcast_add.default(_zeros(dout, a["x"], x_offsets), dout.contiguous(), x_offsets)}


def _position_time_backward(a: dict[str, Any], needs: dict[str, bool], dout: torch.Tensor) -> Gradients:
    a = {name: value for name, value in a.items() if name != "emb"}
    demb, dpos_w, dts_w = _ops._jagged_position_time_backward.default(
        dout.contiguous(), **a, want_demb=needs["emb"], want_dpos_w=needs["pos_w"],
        want_dts_w=needs.get("ts_w", False))
    return {"emb": demb, "pos_w": dpos_w, "ts_w": dts_w}


_resize = differentiable("jagged_resize", ("x",), _resize_backward)
_concat = differentiable("jagged_concat", ("left", "right"), _concat_backward)
_split = differentiable("jagged_split", ("x",), _split_backward)
_replace_last = differentiable("jagged_replace_last", ("x", "last"), _replace_last_backward)
_broadcast_add = differentiable("jagged_broadcast_add", ("x", "d"), _broadcast_add_backward)
_sum = differentiable("jagged_sum", ("x",), _sum_backward)
_position_time = differentiable("jagged_position_time_forward", ("emb", "pos_w", "ts_w"), _position_time_backward,
                                keep=("pos_w", "ts_w"))


def jagged_complete_cumsum(lengths: torch.Tensor) -> torch.Tensor:
    """Offsets [B+1] = 0, l0, l0+l1, ... of lengths [B], of the same type."""
    return _ops._jagged_complete_cumsum.default(lengths, [lengths.shape[0] + 1])


def _resized(x: torch.Tensor, x_offsets: Any, out_offsets: Any, leading: tuple, align: str, pad: Any) -> torch.Tensor:
    if pad is not None:
        pad = torch.full((), pad, dtype=x.dtype)
    return _resize(_given(x=x, out_shape=[*leading, *_shapes.row(x, x_offsets)], x_offsets=x_offsets,
                          out_offsets=out_offsets, align=word("align", align, ALIGN), pad=pad))


def jagged_to_padded(x: torch.Tensor, offsets: torch.Tensor, length: int, *, align: str = "start",
                     pad: float | None = None) -> torch.Tensor:
    """x [T, ...] with offsets [B+1] as [B, length, ...]: longer sequences are cut, shorter ones filled
    with pad (zero). align "end" cuts and fills in front."""
    return _resized(x, offsets, None, (offsets.shape[0] - 1, length), align, pad)


def padded_to_jagged(x: torch.Tensor, offsets: torch.Tensor, rows: int | None = None, *,
                     align: str = "start") -> torch.Tensor:
    """x [B, n, ...] as [rows, ...] with offsets [B+1]; rows that x lacks are zero. rows defaults to
    offsets[-1], which a compiled program must be told."""
    return _resized(x, None, offsets, (int(offsets[-1]) if rows is None else rows,), align, None)


def jagged_resize(x: torch.Tensor, x_offsets: torch.Tensor, out_offsets: torch.Tensor, rows: int | None = None, *,
                  align: str = "start", pad: float | None = None) -> torch.Tensor:
    """x [T, ...] with other lengths: [rows, ...] with out_offsets [B+1], cut or filled with pad (zero) at
    the end, or with align "end" in front. rows: out_offsets[-1]."""
    return _resized(x, x_offsets, out_offsets, (int(out_offsets[-1]) if rows is None else rows,), align, pad)


def jagged_concat(left: torch.Tensor, right: torch.Tensor, left_offsets: torch.Tensor | None = None,
                  right_offsets: torch.Tensor | None = None, *, n_prefix: int = 0,
                  rows: int | None = None) -> torch.Tensor:
    """Per sequence right[:n_prefix], left, right[n_prefix:]. A side is [T, ...] with offsets [B+1], or
    [B, n, ...] without. Returns [rows, ...]; rows: those of both sides."""
    if rows is None:
        rows = _shapes.rows(left, left_offsets) + _shapes.rows(right, right_offsets)
    return _concat(_given(left=left, right=right, out_shape=[rows, *_shapes.row(left, left_offsets)],
                          left_offsets=left_offsets, right_offsets=right_offsets, n_prefix=n_prefix))


def jagged_split(x: torch.Tensor, left_offsets: torch.Tensor | None = None,
                 right_offsets: torch.Tensor | None = None, *, n_left: int | None = None,
                 n_right: int | None = None, n_prefix: int = 0) -> tuple[torch.Tensor, torch.Tensor]:
    """The inverse of jagged_concat: left and right of x [T, ...]. A side without offsets is [B, n, ...]
    with n_left or n_right rows in every sequence; with offsets, [n, ...], n defaults to offsets[-1]."""
    left, right = _shapes.split(left_offsets, right_offsets, n_left, n_right)
    return _split(_given(x=x, left_shape=[*left, *x.shape[1:]], right_shape=[*right, *x.shape[1:]],
                         left_offsets=left_offsets, right_offsets=right_offsets, n_prefix=n_prefix))


def jagged_replace_last(x: torch.Tensor, last: torch.Tensor, x_offsets: torch.Tensor,
                        last_offsets: torch.Tensor | None = None) -> torch.Tensor:
    """x [T, ...] with the last rows of every sequence replaced by those of last ([Tl, ...] with
    last_offsets, or [B, n, ...])."""
    return _replace_last(_given(x=x, last=last, x_offsets=x_offsets, last_offsets=last_offsets))


def jagged_broadcast_add(x: torch.Tensor, d: torch.Tensor, x_offsets: torch.Tensor | None = None) -> torch.Tensor:
    """x ([T, ...] with x_offsets, or [B, n, ...]) with row d[b] added to all rows of sequence b."""
    return _broadcast_add(_given(x=x, d=d, x_offsets=x_offsets))


def jagged_sum(x: torch.Tensor, x_offsets: torch.Tensor | None = None) -> torch.Tensor:
    """[B, ...]: the sum of the rows of every sequence of x ([T, ...] with x_offsets, or [B, n, ...])."""
    shape = [_shapes.n_sequences(x, x_offsets), *_shapes.row(x, x_offsets)]
    return _sum(_given(x=x, out_shape=shape, x_offsets=x_offsets))


def jagged_position_time(emb: torch.Tensor, pos_w: torch.Tensor, seq_offsets: torch.Tensor, *,
                         ts_w: torch.Tensor | None = None, timestamps: torch.Tensor | None = None,
                         num_targets: torch.Tensor | int | None = None,
                         num_contexts: torch.Tensor | int | None = None,
                         position_start: torch.Tensor | int | None = None, position_order: str = "from_end",
                         time_bucket: str = "sqrt", alpha: float = 1.0) -> torch.Tensor:
    """alpha * emb + pos_w[position] + ts_w[time bucket] for every token of a jagged array.

    emb [T, E], pos_w [NP, E], ts_w [NB+1, E] with timestamps [T] (int64 or int32), seq_offsets [B+1];
    num_targets, num_contexts, position_start a number or [B]. docs/jagged.md has the positions.
    """
    numbers = dict(num_targets=num_targets, num_contexts=num_contexts, position_start=position_start)
    for name, value in numbers.items():
        if isinstance(value, int):
            numbers[name] = torch.full((), value, dtype=seq_offsets.dtype)
    words = {name: word(name, value, POSITION_TIME_WORDS[name])
             for name, value in (("position_order", position_order), ("time_bucket", time_bucket))}
    return _position_time(_given(emb=emb, pos_w=pos_w, seq_offsets=seq_offsets, ts_w=ts_w, timestamps=timestamps,
                                 alpha=alpha, **numbers, **words))
