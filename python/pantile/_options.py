"""The options of HSTU attention, which NumPy and torch functions share, and the words among them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypedDict

from ._library import word

if TYPE_CHECKING:
    from typing import Union

    import numpy
    import torch

    Array = Union[numpy.ndarray, torch.Tensor, None]


class HstuOptions(TypedDict, total=False):
    """Options of HSTU attention beside scaling_seqlen, alpha, num_targets and num_contexts. Index arrays are
    int32 or int64, all of a call alike. docs/hstu.md has formulas and pictures.

    B sequences, Hq query heads, Tq and Tk jagged rows; the dense layout has [B, Sq], [B, Sk] instead.
    """

    seq_offsets_k: Array  # [B+1]: rows of k and v; default seq_offsets_q
    seqused_q: Array  # [B]: only the first rows of each sequence exist
    seqused_k: Array
    max_seqlen_q: int  # checked, and extents of mask and attn_bias; default -1: the longest sequence
    max_seqlen_k: int
    attn_scale: float | Array  # f32, instead of scaling_seqlen: a number, or [Tq], dense [B, Sq]
    window_left: int  # columns to the left of the row; default -1: all
    window_right: int  # to the right; default 0: causal; -1: all
    target_group_size: int  # default 1
    min_full_attn_seq_len: int  # last history rows that ignore window_left; default 0
    mask: Array  # u8 or bool [B or 1, Hq or 1, max_seqlen_q, max_seqlen_k] instead of the rule
    intervals: Array  # [Tq, 2G], dense [B, Sq, 2G]: pairs [s, e) instead of the rule
    attn_bias: Array  # f32 or the type of q [B or 1, Hq or 1, R, max_seqlen_k]
    bias_scale: float  # default alpha
    bias_rows: str  # "query": R = max_seqlen_q (default); "key": rows by position, R = max_seqlen_k
    pos_table: Array  # f32 [2N-1] or [Hq, 2N-1]: entry N-1 + j - p
    time_table: Array  # f32 [M+1] or [Hq, M+1]: entry by the number of thresholds <= |dt|
    time_thresholds: Array  # i64 [M], ascending
    timestamps: Array  # i64 [Tk], or [B, max_seqlen_k] by position
    time_query: str  # whose time a query has: "next" (default) or "own"
    k_pages: Array  # [pages, page_size, Hk, Dqk]: cached keys, forward only
    v_pages: Array
    page_offsets: Array  # [B+1]: where each sequence's pages begin in page_ids
    page_ids: Array
    last_page_lens: Array  # [B]: tokens in the last page


HSTU_WORDS = {"bias_rows": ("query", "key"), "time_query": ("next", "own")}


def numbers_for_words(options: Any) -> None:
    """Replaces the words of options, in place."""
    for name, words in HSTU_WORDS.items():
        if name in options:
            options[name] = word(name, options[name], words)
