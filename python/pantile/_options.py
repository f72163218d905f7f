"""The options of HSTU and of sparse attention, which NumPy and torch functions share, and the words among them."""

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


class NsaOptions(TypedDict, total=False):
    """Options of the sparse attention functions, each of which takes those that docs/nsa.md says it reads.
    Index arrays are int32 or int64. docs/nsa.md has formulas and pictures.

    T query rows; the dense layout has [B, Q] instead. Hq query heads, Hk kv heads.
    """

    block: int  # l, tokens that a compressed key stands for; default 32
    stride: int  # d, tokens between them; divides block and select_block; default 16
    select_block: int  # tokens of a selection block; default 64
    topk: int  # blocks that a row and kv head selects, forced ones included; default 16
    n_init: int  # first blocks, always selected; default 1
    n_local: int  # newest blocks, the row's own included, always selected; default 2
    window: int  # sliding window in tokens, the row's own included; default 512; 0: no sliding branch
    dense_len: int  # rows with t + 1 < dense_len attend to all blocks; default 0
    scale: float  # default D^-1/2
    score: str  # "overlap" (default), "plus", "ascend"
    pool: str  # "sum" (default), "max"
    order: str  # of the selected blocks in idx: "index" (default), "score"
    score_dtype: str  # "float32" (default); "float16", "bfloat16": probabilities are rounded to it
    gate_act: str  # "none" (default), "sigmoid"
    q_cmp: Array  # queries of the compressed branch; default q
    k_swa: Array  # keys and values of the sliding branch; default k, v
    v_swa: Array
    seq_offsets_k: Array  # [B+1]: jagged k; default seq_offsets_q
    seqlens_k: Array  # [B]: tokens of each sequence; default the rows of k; required with page_table
    page_table: Array  # [B, M]: pages of k and v, which are then [pages, page, Hk, D]
    seq_offsets_kc: Array  # [B+1]: jagged kc and vc
    page_table_c: Array  # [B, Mc]: pages of kc and vc
    lse_in: Array  # f32 [T, Hq]: normalises the compressed branch instead of its own sum
    count: Array  # [T, Hk]: fewer than topk blocks for a row


HSTU_WORDS = {"bias_rows": ("query", "key"), "time_query": ("next", "own")}
NSA_WORDS = {"score": ("overlap", "plus", "ascend"), "pool": ("sum", "max"), "order": ("index", "score"),
             "gate_act": ("none", "sigmoid"), "mode": ("mean", "weighted"),
             "score_dtype": ("float32", "float16", "bfloat16")}
_FIRST = {"score_dtype": 1}  # numbers of enums that do not begin at 0


def numbers_for_words(options: Any, words: dict[str, tuple[str, ...]] = HSTU_WORDS) -> None:
    """Replaces the words of options, in place."""
    for name, choices in words.items():
        if name in options:
            options[name] = word(name, options[name], choices) + _FIRST.get(name, 0)
