"""The operators on NumPy arrays, and whatever NumPy can view: buffers, CPU tensors, DLPack."""

from __future__ import annotations

import ctypes
from typing import TYPE_CHECKING, Any, Sequence

import numpy as np

from . import _abi, _shapes
from ._library import LIBRARY, Context, Error, call, check, word
from ._options import HstuOptions, numbers_for_words

if TYPE_CHECKING:
    from typing_extensions import Unpack

_OUTPUT_DTYPES = {1: np.float32, 4: np.int32, 5: np.int64}
# bf16 is the type of ml_dtypes where that is installed, else its bits in uint16.
_DTYPES = {"float32": 1, "float16": 2, "bfloat16": 3, "uint16": 3, "int32": 4, "int64": 5, "uint8": 6, "bool": 6}
_INDEX = {"seq_offsets", "seq_offsets_q", "seq_offsets_k", "seqused_q", "seqused_k", "num_contexts",
          "num_targets", "page_offsets", "page_ids", "last_page_lens", "n_cached", "lengths", "position_start",
          "x_offsets", "out_offsets", "left_offsets", "right_offsets", "last_offsets", "seqlens_k", "seqlens_old",
          "seqlens", "page_table", "page_table_c", "seq_offsets_kc", "slots", "count", "idx"}


def _describe(name: str, array: np.ndarray) -> _abi.Tensor:
    dtype = _DTYPES.get(array.dtype.name) if array.dtype.isnative else None
    if dtype is None:
        raise Error("PTL_ERR_DTYPE", f"{name}: {array.dtype}, expected one of {', '.join(_DTYPES)}")
    if array.ndim > 4:
        raise Error("PTL_ERR_SHAPE", f"{name}: {array.ndim} axes, expected at most 4")
    size = array.itemsize
    if any(stride % size for stride in array.strides):
        raise Error("PTL_ERR_LAYOUT", f"{name}: strides {array.strides} in bytes, expected multiples of {size}")
    return _abi.Tensor(array.ctypes.data, dtype, array.ndim, array.shape,
                       tuple(stride // size for stride in array.strides))


def _array(name: str, value: Any, index: np.dtype) -> np.ndarray:
    """An input as an array; numbers and lists take the type that the argument has."""
    if isinstance(value, np.ndarray):
        return value
    if not hasattr(value, "__array__") and hasattr(value, "__dlpack__"):
        return np.from_dlpack(value)
    array = np.asarray(value)
    if hasattr(value, "dtype") or array.dtype.kind not in "if":
        return array
    if array.dtype.kind == "i" or array.size == 0 and name in _INDEX:
        return array.astype(index) if name in _INDEX else array
    return array.astype(np.float32) if array.ndim == 0 else array


def _output(name: str, value: Any) -> np.ndarray:
    if not isinstance(value, np.ndarray) or not value.flags.writeable:
        raise Error("PTL_ERR_PARAM", f"{name}: {type(value).__name__}, expected a writable NumPy array")
    return value


def _run(name: str, context: Context | None, arguments: dict[str, Any], results: dict[str, Any]) -> dict[str, Any]:
    """Calls an operator. results: for each wanted one the array to write, its shape, or None for the
    shape that follows from the arguments. Returns the arrays."""
    operator = _abi.OPERATORS[name]
    if unknown := arguments.keys() - operator.arguments.keys():
        raise TypeError(f"{name}: unknown argument {sorted(unknown)[0]!r}")
    index = next((value.dtype for key, value in arguments.items() if key in _INDEX and isinstance(value, np.ndarray)),
                 np.dtype(np.int64))
    values = {}
    for key, value in arguments.items():
        if value is not None:
            values[key] = value if operator.arguments[key].kind.is_number else _array(key, value, index)
    for key, value in results.items():
        output = operator.outputs[key]
        like = output.model(values)
        for missing in {like, output.last} - values.keys() - {None}:
            raise Error("PTL_ERR_PARAM", f"{key}: wanted, but {missing} is not given")
        if value is None or isinstance(value, tuple):
            shape = value or output.shape({name: np.shape(array) for name, array in values.items()})
            results[key] = np.empty(shape, _OUTPUT_DTYPES[output.dtype] if output.dtype else values[like].dtype)
        else:
            results[key] = _output(key, value)
    for key, argument in operator.arguments.items():
        if argument.mutated and arguments.get(key) is not None:
            _output(key, arguments[key])
    call(operator, context, {**values, **results}, _describe)
    return results


# ---- HSTU ----------------------------------------------------------------------------------------

def hstu_forward(q: Any, k: Any, v: Any, seq_offsets_q: Any = None, *, scaling_seqlen: int = 0, alpha: float = 1.0,
                 num_targets: Any = None, num_contexts: Any = None, out: np.ndarray | None = None,
                 context: Context | None = None, **options: Unpack[HstuOptions]) -> np.ndarray:
    """Fused HSTU attention: out_i = s_i * sum over valid j of silu(alpha * q_i.k_j + bias_ij) * v_j.

    Jagged: q [Tq, Hq, Dqk], k [Tk, Hk, Dqk], v [Tk, Hk, Dv], seq_offsets_q [B+1]. Dense: q [B, Sq, Hq,
    Dqk], k [B, Sk, Hk, Dqk], v [B, Sk, Hk, Dv], without seq_offsets_q. float32, float16 or bf16 (uint16
    bits, or the type of ml_dtypes). Any strides, but a contiguous last axis.
    scaling_seqlen: N, by which rows of the result are divided; it or the option attn_scale is required.
    num_targets, num_contexts: a number or [B]. pantile.HstuOptions lists the other options.
    Returns out [Tq, Hq, Dv] or [B, Sq, Hq, Dv].
    """
    numbers_for_words(options)
    arguments = dict(q=q, k=k, v=v, seq_offsets_q=seq_offsets_q, scaling_seqlen=scaling_seqlen, alpha=alpha,
                     num_targets=num_targets, num_contexts=num_contexts, **options)
    return _run("hstu_forward", context, arguments, {"out": out})["out"]


def hstu_backward(dout: Any, q: Any, k: Any, v: Any, seq_offsets_q: Any = None, *, scaling_seqlen: int = 0,
                  alpha: float = 1.0, num_targets: Any = None, num_contexts: Any = None,
                  want: Sequence[str] = (), out: dict[str, np.ndarray] | None = None,
                  context: Context | None = None, **options: Unpack[HstuOptions]) -> dict[str, np.ndarray]:
    """Gradients of hstu_forward, from dout, the gradient of its result.

    Returns dq, dk, dv by name, and what `want` asks for of dbias, dpos_table, dtime_table (shapes of
    attn_bias, pos_table, time_table) and ds (float32 [Tq] or [B, Sq], of the scale of a row). `out` may
    name arrays to write into, strided ones too.
    """
    numbers_for_words(options)
    arguments = dict(dout=dout, q=q, k=k, v=v, seq_offsets_q=seq_offsets_q, scaling_seqlen=scaling_seqlen,
                     alpha=alpha, num_targets=num_targets, num_contexts=num_contexts, **options)
    results = {name: (out or {}).get(name) for name in dict.fromkeys(["dq", "dk", "dv", *want, *(out or {})])}
    return _run("hstu_backward", context, arguments, results)


def hstu_kv_append(k: Any, v: Any, seq_offsets: Any, n_cached: Any, k_pages: np.ndarray, v_pages: np.ndarray,
                   page_offsets: Any, page_ids: Any, *, num_targets: Any = None,
                   context: Context | None = None) -> None:
    """Copies the rows of k [T, Hk, Dqk] and v [T, Hk, Dv], but for the last num_targets (a number or
    [B]) of each sequence, into k_pages and v_pages [pages, page_size, Hk, D], behind the n_cached [B]
    tokens that are there."""
    _run("hstu_kv_append", context,
         dict(k=k, v=v, seq_offsets=seq_offsets, num_targets=num_targets, n_cached=n_cached, k_pages=k_pages,
              v_pages=v_pages, page_offsets=page_offsets, page_ids=page_ids), {})


def hstu_time_thresholds(fn: str, unit: float, divisor: float, n: int) -> np.ndarray:
    """time_thresholds, int64 [n], of bucket(x) = trunc(fn(x / unit) / divisor) with fn "log" or "sqrt"."""
    thresholds = np.empty(n, np.int64)
    check(LIBRARY.ptl_hstu_time_thresholds(word("fn", fn, ("log", "sqrt")), ctypes.c_float(unit),
                                           ctypes.c_float(divisor), ctypes.c_int64(n),
                                           ctypes.c_void_p(thresholds.ctypes.data)))
    return thresholds


# ---- Jagged --------------------------------------------------------------------------------------

ALIGN = ("start", "end")


def jagged_complete_cumsum(lengths: Any) -> np.ndarray:
    """Offsets [B+1] = 0, l0, l0+l1, ... of lengths [B], of the same type."""
    return _run("jagged_complete_cumsum", None, dict(lengths=lengths), {"offsets": (len(lengths) + 1,)})["offsets"]


def _resize(x: Any, x_offsets: Any, out_offsets: Any, leading: tuple, align: str, pad: Any, out: Any,
            context: Context | None) -> np.ndarray:
    x = np.asarray(x)
    arguments = dict(x=x, x_offsets=x_offsets, out_offsets=out_offsets, align=word("align", align, ALIGN),
                     pad=None if pad is None else np.asarray(pad, x.dtype))
    shape = (*leading, *_shapes.row(x, x_offsets))
    return _run("jagged_resize", context, arguments, {"out": shape if out is None else out})["out"]


def jagged_to_padded(x: Any, offsets: Any, length: int, *, align: str = "start", pad: Any = None,
                     out: np.ndarray | None = None, context: Context | None = None) -> np.ndarray:
    """x [T, ...] with offsets [B+1] as [B, length, ...]: longer sequences are cut, shorter ones filled
    with pad (zero). align "end" cuts and fills in front."""
    return _resize(x, offsets, None, (len(offsets) - 1, length), align, pad, out, context)


def padded_to_jagged(x: Any, offsets: Any, rows: int | None = None, *, align: str = "start",
                     out: np.ndarray | None = None, context: Context | None = None) -> np.ndarray:
    """x [B, n, ...] as [rows, ...] with offsets [B+1]; rows that x lacks are zero. rows: offsets[-1]."""
    leading = (int(offsets[-1]) if rows is None else rows,)
    return _resize(x, None, offsets, leading, align, None, out, context)


def jagged_resize(x: Any, x_offsets: Any, out_offsets: Any, rows: int | None = None, *, align: str = "start",
                  pad: Any = None, out: np.ndarray | None = None, context: Context | None = None) -> np.ndarray:
    """x [T, ...] with other lengths: [rows, ...] with out_offsets [B+1], cut or filled with pad (zero) at
    the end, or with align "end" in front. rows: out_offsets[-1]."""
    leading = (int(out_offsets[-1]) if rows is None else rows,)
    return _resize(x, x_offsets, out_offsets, leading, align, pad, out, context)


def jagged_concat(left: Any, right: Any, left_offsets: Any = None, right_offsets: Any = None, *, n_prefix: int = 0,
                  rows: int | None = None, out: np.ndarray | None = None,
                  context: Context | None = None) -> np.ndarray:
    """Per sequence right[:n_prefix], left, right[n_prefix:]. A side is [T, ...] with offsets [B+1], or
    [B, n, ...] without. Returns [rows, ...]; rows: those of both sides."""
    left, right = np.asarray(left), np.asarray(right)
    if rows is None:
        rows = _shapes.rows(left, left_offsets) + _shapes.rows(right, right_offsets)
    arguments = dict(left=left, left_offsets=left_offsets, right=right, right_offsets=right_offsets, n_prefix=n_prefix)
    shape = (rows, *_shapes.row(left, left_offsets))
    return _run("jagged_concat", context, arguments, {"out": shape if out is None else out})["out"]


def jagged_split(x: Any, left_offsets: Any = None, right_offsets: Any = None, *, n_left: int | None = None,
                 n_right: int | None = None, n_prefix: int = 0,
                 context: Context | None = None) -> tuple[np.ndarray, np.ndarray]:
    """The inverse of jagged_concat: left and right of x [T, ...]. A side without offsets is [B, n, ...]
    with n_left or n_right rows in every sequence; with offsets, [n, ...], n defaults to offsets[-1]."""
    x = np.asarray(x)
    leading = _shapes.split(left_offsets, right_offsets, n_left, n_right)
    arguments = dict(x=x, left_offsets=left_offsets, right_offsets=right_offsets, n_prefix=n_prefix)
    results = _run("jagged_split", context, arguments,
                   {side: (*shape, *x.shape[1:]) for side, shape in zip(("left", "right"), leading)})
    return results["left"], results["right"]


def jagged_replace_last(x: Any, last: Any, x_offsets: Any, last_offsets: Any = None, *, out: np.ndarray | None = None,
                        context: Context | None = None) -> np.ndarray:
    """x [T, ...] with the last rows of every sequence replaced by those of last ([Tl, ...] with
    last_offsets, or [B, n, ...])."""
    arguments = dict(x=x, last=last, x_offsets=x_offsets, last_offsets=last_offsets)
    return _run("jagged_replace_last", context, arguments, {"out": out})["out"]


def jagged_broadcast_add(x: Any, d: Any, x_offsets: Any = None, *, out: np.ndarray | None = None,
                         context: Context | None = None) -> np.ndarray:
    """x ([T, ...] with x_offsets, or [B, n, ...]) with row d[b] added to all rows of sequence b."""
    return _run("jagged_broadcast_add", context, dict(x=x, d=d, x_offsets=x_offsets), {"out": out})["out"]


def jagged_sum(x: Any, x_offsets: Any = None, *, out: np.ndarray | None = None,
               context: Context | None = None) -> np.ndarray:
    """[B, ...]: the sum of the rows of every sequence of x ([T, ...] with x_offsets, or [B, n, ...])."""
    x = np.asarray(x)
    x_offsets = None if x_offsets is None else np.asarray(x_offsets)
    shape = (_shapes.n_sequences(x, x_offsets), *_shapes.row(x, x_offsets))
    return _run("jagged_sum", context, dict(x=x, x_offsets=x_offsets), {"out": shape if out is None else out})["out"]


POSITION_TIME_WORDS = {"position_order": ("from_end", "from_start"), "time_bucket": ("sqrt", "log")}


def jagged_position_time(emb: Any, pos_w: Any, seq_offsets: Any, *, ts_w: Any = None, timestamps: Any = None,
                         num_targets: Any = None, num_contexts: Any = None, position_start: Any = None,
                         position_order: str = "from_end", time_bucket: str = "sqrt", alpha: float = 1.0,
                         out: np.ndarray | None = None, context: Context | None = None) -> np.ndarray:
    """alpha * emb + pos_w[position] + ts_w[time bucket] for every token of a jagged array.

    emb [T, E], pos_w [NP, E], ts_w [NB+1, E] with timestamps [T] (int64 or int32), seq_offsets [B+1];
    num_targets, num_contexts, position_start a number or [B]. docs/jagged.md has the positions.
    """
    arguments = dict(emb=emb, pos_w=pos_w, seq_offsets=seq_offsets, ts_w=ts_w, timestamps=timestamps,
                     num_targets=num_targets, num_contexts=num_contexts, position_start=position_start, alpha=alpha,
                     position_order=word("position_order", position_order, POSITION_TIME_WORDS["position_order"]),
                     time_bucket=word("time_bucket", time_bucket, POSITION_TIME_WORDS["time_bucket"]))
    return _run("jagged_position_time_forward", context, arguments, {"out": out})["out"]
