"""Sparse attention, and full attention by the same engine, on tensors: the functions of pantile._numpy_nsa for
inference. Nothing here has a gradient, and arguments that want one are refused."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Sequence

import torch

from .. import _shapes
from .._abi import OPERATORS
from .._options import NSA_WORDS, NsaOptions, numbers_for_words
from ._register import RENAMED, USUAL, TorchOperator

if TYPE_CHECKING:
    from typing_extensions import Unpack

_ops = torch.ops.pantile
_FUNCTIONS = [name for name in OPERATORS if name.startswith(("nsa_", "attention_"))]


def _function(name: str, only: tuple[str, ...] = (), prefix: str = "_", suffix: str = "") -> tuple:
    """(the operator, its arguments in order with their defaults): calls by place are faster than by name."""
    defaults = TorchOperator(name, OPERATORS[name], only).defaults()
    return getattr(_ops, f"{prefix}{name}{suffix}").default, defaults


# Eager calls take the kernel alone, and where they have only usual arguments that of the short schema.
_eager = {name: _function(name) for name in _FUNCTIONS}
_traced = {name: _function(name, prefix="") for name in _FUNCTIONS}
_usual = {name: _function(name, only, suffix="_usual") for name, only in USUAL.items() if name in _FUNCTIONS}


def refuse_gradients(name: str, arguments: dict[str, Any]) -> None:
    for key, value in arguments.items():
        if isinstance(value, torch.Tensor) and value.requires_grad:
            raise RuntimeError(f"{key}: requires a gradient, but {name} has no backward pass; call it under "
                               "torch.no_grad() or with detached tensors")


def _register_refusals() -> None:
    """For programs that call torch.ops.pantile themselves."""
    for name in _FUNCTIONS:
        if any(argument.mutated for argument in OPERATORS[name].arguments.values()):
            continue

        def backward(ctx: Any, *grads: Any, name: str = name) -> None:
            raise RuntimeError(f"{name}: has no backward pass")

        torch.library.register_autograd(f"pantile::{name}", backward)


_register_refusals()


def _call(name: str, arguments: dict[str, Any], want: Sequence[str] = (), always: Sequence[str] = (),
          n_blocks: int | None = None, rows: int | None = None) -> Any:
    """Calls an operator with the arguments that are not None. Returns the first of `always`, or with want a
    dict of all wanted results."""
    arguments = {key: value for key, value in arguments.items() if value is not None}
    if torch.is_grad_enabled():
        refuse_gradients(name, arguments)
    tracing = torch.compiler.is_compiling()
    if not want and not tracing and name in _usual:
        operator, defaults = _usual[name]
        if arguments.keys() <= defaults.keys():
            return operator(*{**defaults, **arguments}.values())
    outputs = OPERATORS[name].outputs
    _shapes.check_wanted(OPERATORS[name], want)
    numbers_for_words(arguments, NSA_WORDS)
    wanted = dict.fromkeys([*always, *want])
    shapes = _shapes.nsa_results(name, arguments, wanted, n_blocks)
    if name == "nsa_compress":
        shapes = _shapes.nsa_compress_results(arguments, rows)
    for key in RENAMED.keys() & arguments.keys():
        arguments[RENAMED[key]] = arguments.pop(key)
    for key in wanted:
        if outputs[key].given:
            arguments[f"{key}_shape"] = shapes[key]
        elif outputs[key].optional:
            arguments[f"want_{key}"] = True
    operator, defaults = (_traced if tracing else _eager)[name]
    for key in arguments.keys() - defaults.keys():
        raise TypeError(f"{name}: unknown argument {key!r}")
    results = operator(*{**defaults, **arguments}.values())
    if not outputs:
        return None
    by_name = dict(zip(outputs, results if isinstance(results, (tuple, list)) else [results]))
    return {key: by_name[key] for key in wanted} if want or not always else by_name[always[0]]


Results = dict[str, torch.Tensor]


def attention_forward(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, seq_offsets_q: torch.Tensor | None = None, *,
                      seq_offsets_k: torch.Tensor | None = None, seqlens_k: torch.Tensor | None = None,
                      page_table: torch.Tensor | None = None, scale: float | None = None, window: int = 0,
                      want: Sequence[str] = ()) -> torch.Tensor | Results:
    """Full causal softmax attention, or over the last `window` keys of each row. No gradient.

    Jagged: q [T, Hq, D], k [Tk, Hk, D], v [Tk, Hk, Dv], seq_offsets_q [B+1], seq_offsets_k [B+1] (default
    seq_offsets_q). Dense: q [B, Q, Hq, D], k [B, S, Hk, D], v [B, S, Hk, Dv]. Paged: k [pages, page, Hk, D],
    v [pages, page, Hk, Dv], page_table [B, M], seqlens_k [B]. The rows of q are the last of their sequence.
    Returns [T, Hq, Dv] or [B, Q, Hq, Dv]. With want=["lse"] a dict of out and lse, float32 [T, Hq] or [B, Q, Hq].
    """
    arguments = dict(q=q, k=k, v=v, seq_offsets_q=seq_offsets_q, seq_offsets_k=seq_offsets_k, seqlens_k=seqlens_k,
                     page_table=page_table, scale=scale, window=window)
    return _call("attention_forward", arguments, want, ["out"])


nsa_compressed_length = _shapes.nsa_compressed_length


def nsa_compress(x: torch.Tensor, seq_offsets: torch.Tensor | None = None, *, seqlens: torch.Tensor | None = None,
                 page_table: torch.Tensor | None = None, block: int = 32, stride: int = 16, mode: str = "mean",
                 w: torch.Tensor | None = None, pe: torch.Tensor | None = None, rows: int | None = None,
                 want: Sequence[str] = ()) -> torch.Tensor | Results:
    """Compressed keys or values: of every complete block of `block` tokens, one each `stride`, the mean of the
    rows x + pe, or with mode "weighted" their sum with the weights w. No gradient.

    x jagged [T, H, D] with seq_offsets [B+1], dense [B, S, H, D], or [pages, page, H, D] with page_table [B, M]
    and seqlens [B]. w [block, H], pe [block, H, D].
    Returns y: jagged [rows, H, D], sequence after sequence (also of a paged x), or dense [B, rows, H, D]; rows
    defaults to the blocks that there are. Rows behind them are not written. With want=["seq_offsets_y"] a dict
    with int64 [B+1], the offsets of a jagged y, too.
    """
    arguments = dict(x=x, seq_offsets=seq_offsets, seqlens=seqlens, page_table=page_table, block=block, stride=stride,
                     mode=mode, w=w, pe=pe)
    return _call("nsa_compress", arguments, want, ["y"], rows=rows)


def nsa_append(seqlens_old: torch.Tensor, seqlens_k: torch.Tensor, *, k: torch.Tensor | None = None,
               v: torch.Tensor | None = None, seq_offsets: torch.Tensor | None = None,
               k_pages: torch.Tensor | None = None, v_pages: torch.Tensor | None = None,
               page_table: torch.Tensor | None = None, k_ring: torch.Tensor | None = None,
               v_ring: torch.Tensor | None = None, kc_pages: torch.Tensor | None = None,
               vc_pages: torch.Tensor | None = None, page_table_c: torch.Tensor | None = None,
               slots: torch.Tensor | None = None, block: int = 32, stride: int = 16, mode: str = "mean",
               w_k: torch.Tensor | None = None, w_v: torch.Tensor | None = None, pe_k: torch.Tensor | None = None,
               pe_v: torch.Tensor | None = None) -> None:
    """Puts new tokens into the cache and compresses the blocks that they complete.

    seqlens_old, seqlens_k [B]: tokens before and after. k, v: the new ones, jagged [T, H, D] with seq_offsets
    [B+1], or dense [B, Q, H, D]; absent, they lie in the pages already. Written: k_pages, v_pages [pages, page,
    H, D] by page_table [B, M], or k_ring, v_ring [B, block, H, D] where no tokens are kept; kc_pages, vc_pages
    [pages, page, H, D] by page_table_c [B, Mc] or slots [B, M]. Keys or values may be absent.
    """
    _call("nsa_append", dict(
        seqlens_old=seqlens_old, seqlens_k=seqlens_k, k=k, v=v, seq_offsets=seq_offsets, k_pages=k_pages,
        v_pages=v_pages, page_table=page_table, k_ring=k_ring, v_ring=v_ring, kc_pages=kc_pages, vc_pages=vc_pages,
        page_table_c=page_table_c, slots=slots, block=block, stride=stride, mode=mode, w_k=w_k, w_v=w_v, pe_k=pe_k,
        pe_v=pe_v))


def nsa_compressed_attention(q: torch.Tensor, kc: torch.Tensor, vc: torch.Tensor | None = None,
                             seq_offsets_q: torch.Tensor | None = None, *, want: Sequence[str] = ("out_cmp", "idx"),
                             n_blocks: int | None = None, **options: Unpack[NsaOptions]) -> Results:
    """Attention over compressed keys, the importance of blocks, and their selection. No gradient.

    q jagged [T, Hq, D] with seq_offsets_q [B+1], or dense [B, Q, Hq, D]; kc and vc jagged [Tc, Hk, D] with
    seq_offsets_kc, dense [B, N, Hk, D], or [pages, page, Hk, D] with page_table_c. seqlens_k or seq_offsets_k say
    how many tokens a sequence has; default, the rows of q. pantile.NsaOptions lists the options.
    Returns what `want` names: out_cmp [T, Hq, Dv], lse_cmp float32 [T, Hq], importance float32 [T, Hk, n_blocks]
    (default: those of the longest sequence; compiled programs must say it), idx int32 [T, Hk, topk], nsel int32
    [T, Hk]; [B, Q] instead of [T] in the dense layout.
    """
    return _call("nsa_compressed_attention", dict(q=q, kc=kc, vc=vc, seq_offsets_q=seq_offsets_q, **options), want,
                 n_blocks=n_blocks)


def nsa_select(importance: torch.Tensor, seq_offsets_q: torch.Tensor | None = None, *, want: Sequence[str] = (),
               **options: Unpack[NsaOptions]) -> torch.Tensor | Results:
    """Selection from importance scores, float32 [T, Hk, Ns] with seq_offsets_q [B+1], or [B, Q, Hk, Ns].

    Options: select_block, topk, n_init, n_local, order, count, seq_offsets_k, seqlens_k, and stride, which divides
    select_block. Returns idx int32 [T, Hk, topk]; with want=["nsel"] a dict with nsel int32 [T, Hk] too.
    """
    return _call("nsa_select", dict(importance=importance, seq_offsets_q=seq_offsets_q, **options), want, ["idx"])


def nsa_attend(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, idx: torch.Tensor | None = None,
               seq_offsets_q: torch.Tensor | None = None, *, want: Sequence[str] = ("out_slc", "out_swa"),
               **options: Unpack[NsaOptions]) -> Results:
    """Attention over the tokens of the blocks idx ([T, Hk, n] or [B, Q, Hk, n]; absent: none), and over the
    sliding window (0: none): two results. No gradient.

    q, k, v as for nsa_forward. Options: block, stride, select_block, window, dense_len, scale, k_swa, v_swa,
    seq_offsets_k, seqlens_k, page_table. Returns what `want` names: out_slc, out_swa [T, Hq, Dv], lse_slc, lse_swa
    float32 [T, Hq], or [B, Q, ...].
    """
    return _call("nsa_attend", dict(q=q, k=k, v=v, idx=idx, seq_offsets_q=seq_offsets_q, **options), want)


def nsa_combine(gates: torch.Tensor, out_cmp: torch.Tensor | None = None, out_slc: torch.Tensor | None = None,
                out_swa: torch.Tensor | None = None, *, gate_act: str = "none") -> torch.Tensor:
    """gates[..., 0] out_cmp + gates[..., 1] out_slc + gates[..., 2] out_swa, gates [T, Hq, 3] or [B, Q, Hq, 3],
    or their sigmoid; the others [T, Hq, Dv] or [B, Q, Hq, Dv], an absent one counts as 0. No gradient."""
    return _call("nsa_combine", dict(gates=gates, out_cmp=out_cmp, out_slc=out_slc, out_swa=out_swa,
                                     gate_act=gate_act), (), ["out"])


def nsa_forward(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, gates: torch.Tensor,
                seq_offsets_q: torch.Tensor | None = None, *, kc: torch.Tensor | None = None,
                vc: torch.Tensor | None = None, want: Sequence[str] = (), n_blocks: int | None = None,
                **options: Unpack[NsaOptions]) -> torch.Tensor | Results:
    """Sparse attention: compressed, selected and sliding branch, combined by the gates. No gradient.

    Jagged: q [T, Hq, D], gates [T, Hq, 3], seq_offsets_q [B+1]; k [Tk, Hk, D], v [Tk, Hk, Dv], with seq_offsets_k
    where q has fewer rows. Dense: q [B, Q, Hq, D], gates [B, Q, Hq, 3], k [B, S, Hk, D], v [B, S, Hk, Dv]. Paged:
    k, v [pages, page, Hk, D] with page_table [B, M] and seqlens_k [B]. kc, vc as for nsa_compressed_attention;
    both absent: the mean over the blocks of k and v. pantile.NsaOptions lists the options.
    Returns [T, Hq, Dv] or [B, Q, Hq, Dv]; with want a dict of out and what want names of out_cmp, out_slc, out_swa,
    lse_cmp, lse_slc, lse_swa, importance, idx, nsel, shaped as by the functions of one step.
    """
    return _call("nsa_forward", dict(q=q, k=k, v=v, gates=gates, seq_offsets_q=seq_offsets_q, kc=kc, vc=vc, **options),
                 want, ["out"], n_blocks)


def nsa_decode(q: torch.Tensor, gates: torch.Tensor, seqlens_old: torch.Tensor, seqlens_k: torch.Tensor,
               k_pages: torch.Tensor, v_pages: torch.Tensor, kc_pages: torch.Tensor | None = None,
               vc_pages: torch.Tensor | None = None, *, k: torch.Tensor | None = None, v: torch.Tensor | None = None,
               page_table: torch.Tensor | None = None, page_table_c: torch.Tensor | None = None,
               seq_offsets_q: torch.Tensor | None = None, want: Sequence[str] = (), n_blocks: int | None = None,
               **options: Any) -> torch.Tensor | Results:
    """One step on paged caches: nsa_append of the new tokens k, v, then nsa_forward over the caches. No gradient.

    q [T, Hq, D], gates [T, Hq, 3], k [T, Hk, D] and v [T, Hk, Dv] with seq_offsets_q [B+1], or all dense [B, Q,
    ...]; the caches, lengths, tables, and the options mode, w_k, w_v, pe_k, pe_v as for nsa_append; the others as
    for nsa_forward, whose results these are. For rings and slots, call the two.
    """
    arguments = dict(q=q, gates=gates, seqlens_old=seqlens_old, seqlens_k=seqlens_k, k_pages=k_pages, v_pages=v_pages,
                     kc_pages=kc_pages, vc_pages=vc_pages, k=k, v=v, page_table=page_table, page_table_c=page_table_c,
                     seq_offsets_q=seq_offsets_q, **options)
    return _call("nsa_decode", arguments, want, ["out"], n_blocks)
