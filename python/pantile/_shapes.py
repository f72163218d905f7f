"""Shapes of what the jagged functions and sparse attention make. For anything that has a shape."""

from __future__ import annotations

from typing import Any

from ._abi import OPERATORS, Operator
from ._library import Error


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


def nsa_compressed_length(s: int, block: int = 32, stride: int = 16) -> int:
    """Complete compression blocks of s tokens."""
    return 0 if s < block else (s - block) // stride + 1


def _lengths(seq_offsets: Any, seqlens: Any, rows: int) -> Any:
    """[B], or a number for all sequences."""
    if seqlens is not None:
        return seqlens
    return rows if seq_offsets is None else seq_offsets[1:] - seq_offsets[:-1]


def selection_blocks(seq_offsets: Any, seqlens: Any, rows: int, select_block: int) -> int:
    """Selection blocks of the longest sequence."""
    longest = _lengths(seq_offsets, seqlens, rows)
    if not isinstance(longest, int) and hasattr(longest, "max"):
        longest = int(longest.max()) if longest.shape[0] else 0
    return (longest + select_block - 1) // select_block


def check_wanted(operator: Operator, want: Any) -> None:
    if isinstance(want, str):
        raise Error("PTL_ERR_PARAM", f"want: {want!r}, expected a list of names")
    for item in want:
        if item not in operator.outputs:
            raise Error("PTL_ERR_PARAM", f"want: {item!r}, expected some of {', '.join(operator.outputs)}")


def _check_axes(name: str, array: Any) -> None:
    if array.ndim not in (3, 4):
        raise Error("PTL_ERR_LAYOUT", f"{name}: {array.ndim} axes, expected 3 to 4")


def _counts(name: str, arguments: dict[str, Any], names: tuple[str, ...], least: int) -> list[int]:
    """Numbers that shapes are made of, or their defaults."""
    values = [arguments.get(key, OPERATORS[name].arguments[key].default) for key in names]
    for key, value in zip(names, values):
        if isinstance(value, (str, float)):
            raise Error("PTL_ERR_PARAM", f"{key}: {value!r}, expected a number")
        if value < least:
            raise Error("PTL_ERR_PARAM", f"{key}: {value}, expected {least} or more")
    return values


# Whose heads are the kv heads, and whose rows the tokens of a dense sequence.
_KEYS = {"nsa_compressed_attention": ("kc", "q"), "nsa_select": ("importance", "importance"),
         "nsa_forward": ("k", "k"), "nsa_decode": ("k_pages", "k_pages")}


def nsa_results(name: str, arguments: dict[str, Any], wanted: Any, n_blocks: int | None) -> dict[str, tuple]:
    """Shapes of those of idx, nsel and importance that are in `wanted`. n_blocks: columns of importance, if
    they are not to be taken from the lengths."""
    if name not in _KEYS or not {"idx", "nsel", "importance"} & set(wanted):
        return {}
    like = OPERATORS[name].outputs["idx"].like
    for key in (*_KEYS[name], like):
        _check_axes(key, arguments[key])
    keys, tokens = (arguments[key] for key in _KEYS[name])
    topk, select_block = _counts(name, arguments, ("topk", "select_block"), 1)
    leading, heads = tuple(arguments[like].shape[:-2]), keys.shape[-2]
    shapes = {"idx": (*leading, heads, topk), "nsel": (*leading, heads)}
    if "importance" in wanted:
        if n_blocks is None:
            offsets = arguments.get("seq_offsets_k", arguments.get("seq_offsets_q"))
            n_blocks = selection_blocks(offsets, arguments.get("seqlens_k"), tokens.shape[1], select_block)
        shapes["importance"] = (*leading, heads, n_blocks)
    return {key: shape for key, shape in shapes.items() if key in wanted}


def nsa_compress_results(arguments: dict[str, Any], rows: int | None) -> dict[str, tuple]:
    """Shapes of y and seq_offsets_y. rows: of y, if not as many as there are blocks."""
    x, page_table, seqlens = (arguments.get(key) for key in ("x", "page_table", "seqlens"))
    seq_offsets = arguments.get("seq_offsets")
    _check_axes("x", x)
    block, stride = _counts("nsa_compress", arguments, ("block", "stride"), 1)
    if block % stride:
        raise Error("PTL_ERR_PARAM", f"stride: {stride}, expected a divisor of block {block}")
    if page_table is not None and seqlens is None or page_table is None and seq_offsets is None and x.ndim == 3:
        missing = "seq_offsets" if page_table is None else "seqlens"
        raise Error("PTL_ERR_NULL", f"{missing}: missing, expected with an x of this layout")
    dense = x.ndim == 4 and page_table is None
    if rows is None and dense and seqlens is None:
        rows = nsa_compressed_length(x.shape[1], block, stride)
    elif rows is None:
        blocks = [nsa_compressed_length(n, block, stride) for n in _lengths(seq_offsets, seqlens, 0).tolist()]
        rows = max(blocks, default=0) if dense else sum(blocks)
    leading = (x.shape[0], rows) if dense else (rows,)
    n = seqlens.shape[0] if seqlens is not None else n_sequences(x, seq_offsets)
    return {"y": (*leading, *x.shape[-2:]), "seq_offsets_y": (n + 1,)}
