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


def _arguments(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, seq_offsets_q: torch.Tensor | None,
               scaling_seqlen: int, alpha: float, options: dict[str, Any]) -> dict[str, Any]:
    """The operator's arguments: without what is absent, words and numbers as it takes them."""
    arguments: dict[str, Any] = {"q": q, "k": k, "v": v, "scaling_seqlen": scaling_seqlen, "alpha": alpha}
    if seq_offsets_q is not None:
        arguments["seq_offsets_q"] = seq_offsets_q
    for name, value in options.items():
        if value is None:
            continue
        if name in _NUMBERS and not isinstance(value, torch.Tensor):
            index = seq_offsets_q if seq_offsets_q is not None else options.get("seqused_q")
            dtype = torch.float32 if name == "attn_scale" else torch.int64 if index is None else index.dtype
            value = torch.full((), value, dtype=dtype)
        elif name in HSTU_WORDS:
            value = word(name, value, HSTU_WORDS[name])
        arguments[name] = value
    return arguments


def _forward(arguments: dict[str, Any]) -> torch.Tensor:
    if arguments.keys() <= _USUAL:
        return _usual(*map(arguments.get, HSTU_USUAL))
    return _full(**arguments)


def _attention_backward(arguments: dict[str, Any], needs: dict[str, bool],
                        dout: torch.Tensor) -> dict[str, torch.Tensor]:
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


_USUAL = frozenset(HSTU_USUAL)
_usual, _full = _ops._hstu_forward_usual.default, _ops._hstu_forward.default
_attention = differentiable("hstu_forward", _TENSORS, _attention_backward, keep=_TENSORS, kernel=_forward)


def hstu_attention(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, seq_offsets_q: torch.Tensor | None = None, *,
                   scaling_seqlen: int = 0, alpha: float = 1.0, num_targets: torch.Tensor | int | None = None,
                   num_contexts: torch.Tensor | int | None = None, out: torch.Tensor | None = None,
                   **options: Unpack[HstuOptions]) -> torch.Tensor:
    """Fused HSTU attention: out_i = s_i * sum over valid j of silu(alpha * q_i.k_j + bias_ij) * v_j.

    Jagged: q [Tq, Hq, Dqk], k [Tk, Hk, Dqk], v [Tk, Hk, Dv], seq_offsets_q [B+1]. Dense: q [B, Sq, Hq,
    Dqk], k [B, Sk, Hk, Dqk], v [B, Sk, Hk, Dv], without seq_offsets_q. float32, float16 or bfloat16; any
    strides, but a contiguous last axis. scaling_seqlen: N, by which rows of the result are divided; it or the
    option attn_scale is required. num_targets, num_contexts: a number or [B]. pantile.HstuOptions lists the
    other options.
    Returns [Tq, Hq, Dv] or [B, Sq, Hq, Dv], written to `out` if that is given (without a gradient).
    Differentiable in q, k, v, attn_bias, pos_table, time_table and attn_scale; paged keys forward only.
    """
    if not (options or out is not None or torch.is_grad_enabled() or torch.compiler.is_compiling()
            or isinstance(num_targets, int) or isinstance(num_contexts, int)):
        return _usual(q, k, v, seq_offsets_q, scaling_seqlen, alpha, num_targets, num_contexts)
    arguments = _arguments(q, k, v, seq_offsets_q, scaling_seqlen, alpha,
                           dict(options, num_targets=num_targets, num_contexts=num_contexts))
    if out is None:
        return _attention(arguments)
    if torch.is_grad_enabled() and any(arguments[name].requires_grad for name in _TENSORS if name in arguments):
        raise RuntimeError("out: given, but an argument requires a gradient")
    _ops.hstu_forward_into.default(**arguments, out=out)
    return out


def hstu_backward(dout: torch.Tensor, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor,
                  seq_offsets_q: torch.Tensor | None = None, *, scaling_seqlen: int = 0, alpha: float = 1.0,
                  num_targets: torch.Tensor | int | None = None, num_contexts: torch.Tensor | int | None = None,
                  want: Sequence[str] = (), out: tuple[torch.Tensor, torch.Tensor, torch.Tensor] | None = None,
                  **options: Unpack[HstuOptions]) -> tuple[torch.Tensor, ...]:
    """Gradients of hstu_attention by hand: dq, dk, dv, then what `want` asks for of dbias, dpos_table,
    dtime_table and ds. out = (dq, dk, dv) are tensors to write into, slices of one buffer for example."""
    arguments = _arguments(q, k, v, seq_offsets_q, scaling_seqlen, alpha,
                           dict(options, num_targets=num_targets, num_contexts=num_contexts))
    arguments.update((f"want_{name}", True) for name in want)
    if out is None:
        dq, dk, dv, *others = _ops.hstu_backward.default(_unit_stride(dout), **arguments)
    else:
        dq, dk, dv = out
        others = _ops.hstu_backward_into.default(_unit_stride(dout), **arguments, dq=dq, dk=dk, dv=dv)
    return (dq, dk, dv, *(others[list(_GRADIENTS).index(name)] for name in want))


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
