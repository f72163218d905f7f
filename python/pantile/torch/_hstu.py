"""HSTU attention on tensors."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Sequence

import torch

from .. import _numpy
from .._library import word
from .._options import HSTU_WORDS, HstuOptions
from ._autograd import differentiable
from ._register import HSTU_USUAL

if TYPE_CHECKING:
    from typing_extensions import Unpack

_ops = torch.ops.pantile
_NUMBERS = ("num_contexts", "num_targets", "attn_scale")
_GRADIENTS = {"dbias": "attn_bias", "dpos_table": "pos_table", "dtime_table": "time_table", "ds": "attn_scale"}
_TENSORS = ("q", "k", "v", *_GRADIENTS.values())


def _arguments(named: dict[str, Any], options: dict[str, Any]) -> dict[str, Any]:
    """The operator's arguments: without what is absent, words and numbers as it takes them."""
    arguments = {name: value for name, value in named.items() if value is not None}
    for name, value in options.items():
        if value is None:
            continue
        if name in _NUMBERS and not isinstance(value, torch.Tensor):
            index = named.get("seq_offsets_q", options.get("seqused_q"))
            dtype = torch.float32 if name == "attn_scale" else torch.int64 if index is None else index.dtype
            value = torch.full((), value, dtype=dtype)
        elif name in HSTU_WORDS:
            value = word(name, value, HSTU_WORDS[name])
        arguments[name] = value
    return arguments


def _forward(**arguments: Any) -> torch.Tensor:
    usual = arguments.keys() <= _USUAL
    return (_ops._hstu_forward_usual.default if usual else _ops._hstu_forward.default)(**arguments)


def _attention_backward(arguments: dict[str, Any], needs: dict[str, bool], dout: torch.Tensor) -> dict[str, torch.Tensor]:
    if "k_pages" in arguments:
        raise RuntimeError("k_pages: paged keys have no backward pass")
    wants = {f"want_{gradient}": True for gradient, name in _GRADIENTS.items() if needs.get(name)}
    dq, dk, dv, *others = _ops.hstu_backward.default(_unit_stride(dout), **arguments, **wants)
    gradients = {"q": dq, "k": dk, "v": dv, **dict(zip(_GRADIENTS.values(), others))}
    if "want_ds" in wants and arguments["attn_scale"].dim() == 0:
        gradients["attn_scale"] = gradients["attn_scale"].sum()
    return gradients


def _unit_stride(x: torch.Tensor) -> torch.Tensor:
    return x if x.stride(-1) == 1 else x.contiguous()


_USUAL = set(HSTU_USUAL)
_attention = differentiable("hstu_forward", _TENSORS, _attention_backward, keep=_TENSORS, kernel=_forward)


def hstu_attention(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, seq_offsets_q: torch.Tensor | None = None, *,
                   out: torch.Tensor | None = None, **options: Unpack[HstuOptions]) -> torch.Tensor:
    """Fused HSTU attention: out_i = s_i * sum over valid j of silu(alpha * q_i.k_j + bias_ij) * v_j.

    Jagged: q [Tq, Hq, Dqk], k [Tk, Hk, Dqk], v [Tk, Hk, Dv], seq_offsets_q [B+1]. Dense: q [B, Sq, Hq,
    Dqk], k [B, Sk, Hk, Dqk], v [B, Sk, Hk, Dv], without seq_offsets_q. float32, float16 or bfloat16; any
    strides, but a contiguous last axis. The options: pantile.HstuOptions; scaling_seqlen or attn_scale is
    required.
    Returns [Tq, Hq, Dv] or [B, Sq, Hq, Dv], written to `out` if that is given (without a gradient).
    Differentiable in q, k, v, attn_bias, pos_table, time_table and attn_scale; paged keys forward only.
    """
    arguments = _arguments(dict(q=q, k=k, v=v, seq_offsets_q=seq_offsets_q), options)
    if out is None:
        return _attention(arguments)
    _ops.hstu_forward_into.default(**arguments, out=out)
    return out


def hstu_backward(dout: torch.Tensor, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor,
                  seq_offsets_q: torch.Tensor | None = None, *, want: Sequence[str] = (),
                  out: tuple[torch.Tensor, torch.Tensor, torch.Tensor] | None = None,
                  **options: Unpack[HstuOptions]) -> tuple[torch.Tensor, ...]:
    """Gradients of hstu_attention by hand: dq, dk, dv, then what `want` asks for of dbias, dpos_table,
    dtime_table and ds. out = (dq, dk, dv) are tensors to write into, slices of one buffer for example."""
    arguments = _arguments(dict(q=q, k=k, v=v, seq_offsets_q=seq_offsets_q), options)
    dout = _unit_stride(dout)
    if out is not None:
        if want:
            raise ValueError("want: with out, only dq, dk and dv are written")
        dq, dk, dv = out
        _ops.hstu_backward_into.default(dout, **arguments, dq=dq, dk=dk, dv=dv)
        return out
    results = _ops.hstu_backward.default(dout, **arguments, **{f"want_{name}": True for name in want})
    return (*results[:3], *(results[3 + list(_GRADIENTS).index(name)] for name in want))


def hstu_kv_append(k: torch.Tensor, v: torch.Tensor, seq_offsets: torch.Tensor, n_cached: torch.Tensor,
                   k_pages: torch.Tensor, v_pages: torch.Tensor, page_offsets: torch.Tensor, page_ids: torch.Tensor,
                   *, num_targets: torch.Tensor | int | None = None) -> None:
    """Copies the rows of k [T, Hk, Dqk] and v [T, Hk, Dv], but for the last num_targets (a number or
    [B]) of each sequence, into k_pages and v_pages [pages, page_size, Hk, D], behind the n_cached [B]
    tokens that are there."""
    if isinstance(num_targets, int):
        num_targets = torch.full((), num_targets, dtype=seq_offsets.dtype)
    _ops.hstu_kv_append.default(k, v, seq_offsets, n_cached, k_pages, v_pages, page_offsets, page_ids, num_targets)


def hstu_time_thresholds(fn: str, unit: float, divisor: float, n: int) -> torch.Tensor:
    """time_thresholds, int64 [n], of bucket(x) = trunc(fn(x / unit) / divisor) with fn "log" or "sqrt"."""
    return torch.from_numpy(_numpy.hstu_time_thresholds(fn, unit, divisor, n))
