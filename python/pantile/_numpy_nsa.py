"""Sparse attention, and full attention by the same engine, on NumPy arrays."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Sequence

import numpy as np

from . import _abi, _shapes
from ._library import Context
from ._numpy import _array, _run
from ._options import NSA_WORDS, NsaOptions, numbers_for_words

if TYPE_CHECKING:
    from typing_extensions import Unpack


def _call(name: str, context: Context | None, arguments: dict[str, Any], want: Sequence[str],
          always: Sequence[str] = (), n_blocks: int | None = None, rows: int | None = None) -> Any:
    """_run with the results that are always made, those in want, and those that are given among the
    arguments. Returns the first of `always`, or with want a dict of all."""
    operator = _abi.OPERATORS[name]
    arguments = {key: value for key, value in arguments.items() if value is not None}
    given = {key: arguments.pop(key) for key in operator.outputs if key in arguments}
    for key, value in arguments.items():
        argument = operator.arguments.get(key)
        if argument and not argument.kind.is_number and not argument.mutated:
            arguments[key] = _array(key, value, np.dtype(np.int64))
    _shapes.check_wanted(operator, want)
    numbers_for_words(arguments, NSA_WORDS)
    results: dict[str, Any] = dict.fromkeys([*always, *want])
    if name == "nsa_compress":
        results.update((key, shape) for key, shape in _shapes.nsa_compress_results(arguments, rows).items()
                       if key in results)
    results.update(_shapes.nsa_results(name, arguments, results.keys() - given.keys(), n_blocks))
    results.update(given)
    results = _run(name, context, arguments, results)
    return results if want or not always else results[always[0]]


def attention_forward(q: Any, k: Any, v: Any, seq_offsets_q: Any = None, *, seq_offsets_k: Any = None,
                      seqlens_k: Any = None, page_table: Any = None, scale: float | None = None, window: int = 0,
                      want: Sequence[str] = (), out: np.ndarray | None = None, lse: np.ndarray | None = None,
                      context: Context | None = None) -> Any:
    """Full causal softmax attention, or over the last `window` keys of each row.

    Jagged: q [T, Hq, D], k [Tk, Hk, D], v [Tk, Hk, Dv], seq_offsets_q [B+1], seq_offsets_k [B+1] (default
    seq_offsets_q). Dense: q [B, Q, Hq, D], k [B, S, Hk, D], v [B, S, Hk, Dv]. Paged: k [pages, page, Hk, D],
    v [pages, page, Hk, Dv], page_table [B, M], seqlens_k [B]. The rows of q are the last of their sequence.
    Returns out [T, Hq, Dv] or [B, Q, Hq, Dv]. With want=["lse"] a dict with lse, float32 [T, Hq] or [B, Q, Hq],
    too.
    """
    arguments = dict(q=q, k=k, v=v, seq_offsets_q=seq_offsets_q, seq_offsets_k=seq_offsets_k, seqlens_k=seqlens_k,
                     page_table=page_table, scale=scale, window=window, out=out, lse=lse)
    return _call("attention_forward", context, arguments, want, ["out"])


def nsa_compressed_length(s: int, block: int = 32, stride: int = 16) -> int:
    """Complete compression blocks of s tokens: 0 if s < block, else (s - block) // stride + 1."""
    return _shapes.nsa_compressed_length(s, block, stride)


def nsa_compress(x: Any, seq_offsets: Any = None, *, seqlens: Any = None, page_table: Any = None, block: int = 32,
                 stride: int = 16, mode: str = "mean", w: Any = None, pe: Any = None, rows: int | None = None,
                 want: Sequence[str] = (), y: np.ndarray | None = None, seq_offsets_y: np.ndarray | None = None,
                 context: Context | None = None) -> Any:
    """Compressed keys or values: of every complete block of `block` tokens, one each `stride`, the mean of the
    rows x + pe, or with mode "weighted" their sum with the weights w.

    x jagged [T, H, D] with seq_offsets [B+1], dense [B, S, H, D], or [pages, page, H, D] with page_table [B, M]
    and seqlens [B]. w [block, H], pe [block, H, D].
    Returns y: jagged [rows, H, D], sequence after sequence (also of a paged x), or dense [B, rows, H, D]; rows
    defaults to the blocks that there are. Rows behind them are not written. With want=["seq_offsets_y"] a dict
    with int64 [B+1], the offsets of a jagged y, too.
    """
    arguments = dict(x=x, seq_offsets=seq_offsets, seqlens=seqlens, page_table=page_table, block=block, stride=stride,
                     mode=mode, w=w, pe=pe, y=y, seq_offsets_y=seq_offsets_y)
    return _call("nsa_compress", context, arguments, want, ["y"], rows=rows)


def nsa_append(seqlens_old: Any, seqlens_k: Any, *, k: Any = None, v: Any = None, seq_offsets: Any = None,
               k_pages: np.ndarray | None = None, v_pages: np.ndarray | None = None, page_table: Any = None,
               k_ring: np.ndarray | None = None, v_ring: np.ndarray | None = None,
               kc_pages: np.ndarray | None = None, vc_pages: np.ndarray | None = None, page_table_c: Any = None,
               slots: Any = None, block: int = 32, stride: int = 16, mode: str = "mean", w_k: Any = None,
               w_v: Any = None, pe_k: Any = None, pe_v: Any = None, context: Context | None = None) -> None:
    """Puts new tokens into the cache and compresses the blocks that they complete.

    seqlens_old, seqlens_k [B]: tokens before and after. k, v: the new ones, jagged [T, H, D] with seq_offsets
    [B+1], or dense [B, Q, H, D]; absent, they lie in the pages already. Written: k_pages, v_pages [pages, page,
    H, D] by page_table [B, M], or k_ring, v_ring [B, block, H, D] where no tokens are kept; kc_pages, vc_pages
    [pages, page, H, D] by page_table_c [B, Mc] or slots [B, M]. Keys or values may be absent.
    """
    arguments = dict(seqlens_old=seqlens_old, seqlens_k=seqlens_k, k=k, v=v, seq_offsets=seq_offsets, k_pages=k_pages,
                     v_pages=v_pages, page_table=page_table, k_ring=k_ring, v_ring=v_ring, kc_pages=kc_pages,
                     vc_pages=vc_pages, page_table_c=page_table_c, slots=slots, block=block, stride=stride, mode=mode,
                     w_k=w_k, w_v=w_v, pe_k=pe_k, pe_v=pe_v)
    _call("nsa_append", context, arguments, ())


def nsa_compressed_attention(q: Any, kc: Any, vc: Any = None, seq_offsets_q: Any = None, *,
                             want: Sequence[str] = ("out_cmp", "idx"), n_blocks: int | None = None,
                             out: dict[str, np.ndarray] | None = None, context: Context | None = None,
                             **options: Unpack[NsaOptions]) -> dict[str, np.ndarray]:
    """Attention over compressed keys, the importance of blocks, and their selection.

    q jagged [T, Hq, D] with seq_offsets_q [B+1], or dense [B, Q, Hq, D]; kc and vc jagged [Tc, Hk, D] with
    seq_offsets_kc, dense [B, N, Hk, D], or [pages, page, Hk, D] with page_table_c. seqlens_k or seq_offsets_k say
    how many tokens a sequence has; default, the rows of q. pantile.NsaOptions lists the options.
    Returns what `want` names, and `out` gives to be written: out_cmp [T, Hq, Dv], lse_cmp float32 [T, Hq],
    importance float32 [T, Hk, n_blocks] (default: those of the longest sequence), idx int32 [T, Hk, topk], nsel
    int32 [T, Hk]; [B, Q] instead of [T] in the dense layout.
    """
    arguments = dict(q=q, kc=kc, vc=vc, seq_offsets_q=seq_offsets_q, **options, **(out or {}))
    return _call("nsa_compressed_attention", context, arguments, want, n_blocks=n_blocks)


def nsa_select(importance: Any, seq_offsets_q: Any = None, *, want: Sequence[str] = (), idx: np.ndarray | None = None,
               nsel: np.ndarray | None = None, context: Context | None = None, **options: Unpack[NsaOptions]) -> Any:
    """Selection from importance scores, float32 [T, Hk, Ns] with seq_offsets_q [B+1], or [B, Q, Hk, Ns].

    Options: select_block, topk, n_init, n_local, order, count, seq_offsets_k, seqlens_k, and stride, which divides
    select_block. Returns idx int32 [T, Hk, topk]; with want=["nsel"] a dict with nsel int32 [T, Hk] too.
    """
    arguments = dict(importance=importance, seq_offsets_q=seq_offsets_q, idx=idx, nsel=nsel, **options)
    return _call("nsa_select", context, arguments, want, ["idx"])


def nsa_attend(q: Any, k: Any, v: Any, idx: Any = None, seq_offsets_q: Any = None, *,
               want: Sequence[str] = ("out_slc", "out_swa"), out: dict[str, np.ndarray] | None = None,
               context: Context | None = None, **options: Unpack[NsaOptions]) -> dict[str, np.ndarray]:
    """Attention over the tokens of the blocks idx ([T, Hk, n] or [B, Q, Hk, n]; absent: none), and over the
    sliding window (0: none): two results.

    q, k, v as for nsa_forward. Options: block, stride, select_block, window, dense_len, scale, k_swa, v_swa,
    seq_offsets_k, seqlens_k, page_table. Returns what `want` names, and `out` gives to be written: out_slc,
    out_swa [T, Hq, Dv], lse_slc, lse_swa float32 [T, Hq], or [B, Q, ...].
    """
    arguments = dict(q=q, k=k, v=v, idx=idx, seq_offsets_q=seq_offsets_q, **options, **(out or {}))
    return _call("nsa_attend", context, arguments, want)


def nsa_combine(gates: Any, out_cmp: Any = None, out_slc: Any = None, out_swa: Any = None, *, gate_act: str = "none",
                out: np.ndarray | None = None, context: Context | None = None) -> np.ndarray:
    """gates[..., 0] out_cmp + gates[..., 1] out_slc + gates[..., 2] out_swa, gates [T, Hq, 3] or [B, Q, Hq, 3],
    or their sigmoid; the others [T, Hq, Dv] or [B, Q, Hq, Dv], an absent one counts as 0."""
    arguments = dict(gates=gates, out_cmp=out_cmp, out_slc=out_slc, out_swa=out_swa, gate_act=gate_act, out=out)
    return _call("nsa_combine", context, arguments, (), ["out"])


def nsa_forward(q: Any, k: Any, v: Any, gates: Any, seq_offsets_q: Any = None, *, kc: Any = None, vc: Any = None,
                want: Sequence[str] = (), n_blocks: int | None = None, out: np.ndarray | None = None,
                context: Context | None = None, **options: Unpack[NsaOptions]) -> Any:
    """Sparse attention: compressed, selected and sliding branch, combined by the gates.

    Jagged: q [T, Hq, D], gates [T, Hq, 3], seq_offsets_q [B+1]; k [Tk, Hk, D], v [Tk, Hk, Dv], with seq_offsets_k
    where q has fewer rows. Dense: q [B, Q, Hq, D], gates [B, Q, Hq, 3], k [B, S, Hk, D], v [B, S, Hk, Dv]. Paged:
    k, v [pages, page, Hk, D] with page_table [B, M] and seqlens_k [B]. kc, vc as for nsa_compressed_attention;
    both absent: the mean over the blocks of k and v. pantile.NsaOptions lists the options.
    Returns out [T, Hq, Dv] or [B, Q, Hq, Dv]; with want a dict of it and what want names of out_cmp, out_slc,
    out_swa, lse_cmp, lse_slc, lse_swa, importance, idx, nsel, all shaped as by the functions of one step.
    """
    arguments = dict(q=q, k=k, v=v, gates=gates, seq_offsets_q=seq_offsets_q, kc=kc, vc=vc, out=out, **options)
    return _call("nsa_forward", context, arguments, want, ["out"], n_blocks)


def nsa_decode(q: Any, gates: Any, seqlens_old: Any, seqlens_k: Any, k_pages: np.ndarray, v_pages: np.ndarray,
               kc_pages: np.ndarray | None = None, vc_pages: np.ndarray | None = None, *, k: Any = None, v: Any = None,
               page_table: Any = None, page_table_c: Any = None, seq_offsets_q: Any = None, mode: str = "mean",
               w_k: Any = None, w_v: Any = None, pe_k: Any = None, pe_v: Any = None, want: Sequence[str] = (),
               n_blocks: int | None = None, out: np.ndarray | None = None, context: Context | None = None,
               **options: Unpack[NsaOptions]) -> Any:
    """One step on paged caches: nsa_append of the new tokens k, v, then nsa_forward over the caches.

    q [T, Hq, D], gates [T, Hq, 3], k [T, Hk, D] and v [T, Hk, Dv] with seq_offsets_q [B+1], or all dense [B, Q,
    ...]; the caches, lengths and tables as for nsa_append. Returns as nsa_forward. For rings and slots, call the
    two.
    """
    arguments = dict(q=q, gates=gates, seqlens_old=seqlens_old, seqlens_k=seqlens_k, k_pages=k_pages, v_pages=v_pages,
                     kc_pages=kc_pages, vc_pages=vc_pages, k=k, v=v, page_table=page_table, page_table_c=page_table_c,
                     seq_offsets_q=seq_offsets_q, mode=mode, w_k=w_k, w_v=w_v, pe_k=pe_k, pe_v=pe_v, out=out,
                     **options)
    return _call("nsa_decode", context, arguments, want, ["out"], n_blocks)
