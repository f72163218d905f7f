"""The C structs and the operators over them: the one table from which NumPy calls, torch schemas and the
C side of the torch operators are made. Loads nothing and calls nothing.

An operator's arguments lie in a frame: a struct that holds the structs which the C function takes. To add
an operator, mirror its struct and add an Operator; tests/python/test_abi.py compares the mirrors with the
headers.
"""

from __future__ import annotations

import ctypes
from ctypes import c_float, c_int, c_int32, c_int64, c_size_t, c_void_p
from dataclasses import dataclass, replace
from enum import IntEnum
from typing import Any, Iterator


class Tensor(ctypes.Structure):
    _fields_ = [("data", c_void_p), ("dtype", c_int), ("ndim", c_int32),
                ("shape", c_int64 * 4), ("stride", c_int64 * 4)]


class Jagged(ctypes.Structure):
    _fields_ = [("values", Tensor), ("offsets", Tensor)]


def tensors(names: str) -> list[tuple[str, type]]:
    return [(name, Tensor) for name in names.split()]


class HstuParams(ctypes.Structure):
    _fields_ = [
        ("struct_size", c_size_t),
        *tensors("q k v out seq_offsets_q seq_offsets_k seqused_q seqused_k"),
        ("max_seqlen_q", c_int64), ("max_seqlen_k", c_int64),
        ("alpha", c_float), ("scaling_seqlen", c_int64), *tensors("attn_scale"),
        ("window_left", c_int64), ("window_right", c_int64), *tensors("num_contexts num_targets"),
        ("target_group_size", c_int64), ("min_full_attn_seq_len", c_int64),
        *tensors("mask intervals attn_bias"), ("bias_scale", c_float), ("bias_rows", c_int),
        *tensors("pos_table time_table time_thresholds timestamps"), ("time_query", c_int),
        *tensors("k_pages v_pages page_offsets page_ids last_page_lens")]


class HstuGrads(ctypes.Structure):
    _fields_ = [("struct_size", c_size_t), *tensors("dout dq dk dv dbias dpos_table dtime_table ds")]


class HstuBackward(ctypes.Structure):
    _fields_ = [("params", HstuParams), ("grads", HstuGrads)]


class HstuKvAppend(ctypes.Structure):
    _fields_ = [("struct_size", c_size_t),
                *tensors("k v seq_offsets num_targets n_cached k_pages v_pages page_offsets page_ids")]


class JaggedCumsum(ctypes.Structure):
    _fields_ = tensors("lengths offsets")


class JaggedResize(ctypes.Structure):
    _fields_ = [("x", Jagged), ("align", c_int64), ("pad", c_void_p), ("out", Jagged)]


class JaggedConcat(ctypes.Structure):
    _fields_ = [("left", Jagged), ("right", Jagged), ("n_prefix", c_int64), ("out", Tensor)]


class JaggedSplit(ctypes.Structure):
    _fields_ = [("x", Tensor), ("n_prefix", c_int64), ("left", Jagged), ("right", Jagged)]


class JaggedReplaceLast(ctypes.Structure):
    _fields_ = [("x", Jagged), ("last", Jagged), ("out", Tensor)]


class JaggedBroadcastAdd(ctypes.Structure):
    _fields_ = [("x", Jagged), ("d", Tensor), ("out", Tensor)]


class JaggedSum(ctypes.Structure):
    _fields_ = [("x", Jagged), ("out", Tensor)]


class JaggedPositionTime(ctypes.Structure):
    _fields_ = [
        ("struct_size", c_size_t), *tensors("seq_offsets num_targets num_contexts"),
        ("position_order", c_int), *tensors("position_start timestamps"),
        ("time_bucket", c_int), ("alpha", c_float),
        *tensors("emb pos_w ts_w out dout demb dpos_w dts_w")]


class AttentionParams(ctypes.Structure):
    _fields_ = [("struct_size", c_size_t),
                *tensors("q k v out lse seq_offsets_q seq_offsets_k seqlens_k page_table"),
                ("scale", c_float), ("window", c_int64)]


class NsaParams(ctypes.Structure):
    _fields_ = [
        ("struct_size", c_size_t),
        ("block", c_int64), ("stride", c_int64), ("select_block", c_int64), ("topk", c_int64),
        ("n_init", c_int64), ("n_local", c_int64), ("window", c_int64), ("dense_len", c_int64),
        ("scale", c_float), *tensors("q q_cmp k v k_swa v_swa kc vc"),
        *tensors("seq_offsets_q seq_offsets_k seqlens_k page_table seq_offsets_kc page_table_c"),
        ("score", c_int), ("pool", c_int), ("order", c_int), ("score_dtype", c_int),
        *tensors("lse_in count gates"), ("gate_act", c_int),
        *tensors("out out_cmp out_slc out_swa lse_cmp lse_slc lse_swa importance idx nsel")]


class NsaCompressParams(ctypes.Structure):
    _fields_ = [("struct_size", c_size_t), ("block", c_int64), ("stride", c_int64), ("mode", c_int),
                *tensors("x y seq_offsets seqlens page_table seq_offsets_y w pe")]


class NsaAppendParams(ctypes.Structure):
    _fields_ = [("struct_size", c_size_t), ("block", c_int64), ("stride", c_int64), ("mode", c_int),
                *tensors("seqlens_old seqlens_k k v seq_offsets k_pages v_pages page_table k_ring v_ring"),
                *tensors("kc_pages vc_pages page_table_c slots w_k w_v pe_k pe_v")]


class NsaDecode(ctypes.Structure):
    """Where both have a name (k: new tokens, or the cache), an argument of it is append's."""
    _fields_ = [("params", NsaParams), ("append", NsaAppendParams)]


class Kind(IntEnum):
    """How an argument enters the frame. The numbers are those of python/torch_operators.c."""
    TENSOR = 0
    OPTIONAL_TENSOR = 1
    DATA = 2            # an optional array, of which the frame takes the address
    INT = 3
    ENUM = 4
    FLOAT = 5
    OPTIONAL_FLOAT = 6  # absent: what the init function wrote

    @property
    def is_number(self) -> bool:
        return self >= Kind.INT


class DType(IntEnum):
    """Of enum ptl_dtype."""
    F32 = 1
    I32 = 4
    I64 = 5


@dataclass(frozen=True)
class Argument:
    name: str
    kind: Kind
    offset: int
    default: int | float | None = None
    mutated: bool = False


@dataclass(frozen=True)
class Output:
    """An array that the operator writes. Its element type is `dtype`, or that of the argument `like`
    (several names: the first that is given); its shape that of `like` without the last `drop` axes, then
    the last axis of the argument `last`. With `given` the shape is an argument of its own, <name>_shape;
    with `optional` the array is made where the argument want_<name> says so, or <name>_shape is not
    empty."""
    name: str
    like: str
    drop: int = 0
    last: str | None = None
    dtype: DType | None = None
    given: bool = False
    optional: bool = False

    def model(self, arguments: Any) -> str:
        """Which of `like` is among the arguments; where none is, the first."""
        names = self.like.split()
        return next((name for name in names if name in arguments), names[0])

    def shape(self, shapes: dict[str, tuple]) -> tuple:
        """From the shapes of the arguments."""
        like = tuple(shapes[self.model(shapes)])
        kept = like[:len(like) - self.drop]
        return kept if self.last is None else (*kept, shapes[self.last][-1])


def locate(frame: Any, path: str) -> tuple[int, int]:
    """(offset, bytes) of the field a.b of a frame."""
    offset = 0
    for name in path.split("."):
        offset += getattr(frame, name).offset
        frame = dict(frame._fields_)[name]
    return offset, ctypes.sizeof(frame)


def flatten(struct: Any, base: int = 0) -> Iterator[tuple[str, type, int]]:
    """(name, C type, offset) of the arguments in a frame; the offsets of a Jagged x are x_offsets."""
    for name, ctype in struct._fields_:
        offset = base + getattr(struct, name).offset
        if ctype is Jagged:
            yield name, Tensor, offset + Jagged.values.offset
            yield f"{name}_offsets", Tensor, offset + Jagged.offsets.offset
        elif ctype is not Tensor and issubclass(ctype, ctypes.Structure):
            yield from flatten(ctype, offset)
        elif name != "struct_size":
            yield name, ctype, offset


_KINDS: dict[Any, Kind] = {c_int64: Kind.INT, c_int: Kind.ENUM, c_float: Kind.FLOAT, c_void_p: Kind.DATA}
NUMBERS: dict[Kind, Any] = {Kind.INT: c_int64, Kind.ENUM: c_int, Kind.FLOAT: c_float, Kind.OPTIONAL_FLOAT: c_float}


class Operator:
    """A C function, its frame, and which of the frame's fields are arguments and results.

    call      the function's parameters after the context, as fields of the frame: structs by address,
              numbers by value. Empty: the frame itself.
    inits     (field or "", init function) of the structs that have one
    first     the arguments that most calls give, in front of the others
    required  the tensors among them that are never absent
    without   fields that this operator does not use
    mutated   arguments that are written
    copies    (field, field) of the frame: what the first holds is put into the second too
    context   whether the function takes one
    """

    def __init__(self, name: str, frame: Any, *, outputs: list[Output], required: str, call: str = "",
                 first: str = "", inits: tuple = (), without: str = "", mutated: str = "",
                 copies: dict[str, str] | None = None, context: bool = True):
        self.name, self.frame, self.inits, self.context = name, frame, inits, context
        self.outputs = {output.name: output for output in outputs}
        fields = {field: (ctype, offset) for field, ctype, offset in flatten(frame)}
        # (offset, C type, whether by value) of what the function takes.
        self.parameters = [(getattr(frame, field).offset, ctype, not issubclass(ctype, ctypes.Structure))
                           for field in call.split() for ctype in [dict(frame._fields_)[field]]]
        self.parameters = self.parameters or [(0, frame, False)]
        # (from, to, bytes)
        self.copies = [(locate(frame, source)[0], *locate(frame, target))
                       for source, target in (copies or {}).items()]
        order = dict.fromkeys([*required.split(), *first.split(), *fields])
        self.arguments: dict[str, Argument] = {}
        for field in order:
            if field in self.outputs or field in without.split():
                continue
            ctype, offset = fields[field]
            kind = _KINDS.get(ctype, Kind.TENSOR if field in required.split() else Kind.OPTIONAL_TENSOR)
            self.arguments[field] = Argument(field, kind, offset, mutated=field in mutated.split())
        # Where arguments and results lie in the frame, and how.
        self.places = {argument.name: (argument.offset, argument.kind) for argument in self.arguments.values()}
        self.places.update((output, (fields[output][1], Kind.TENSOR)) for output in self.outputs)

    def load(self, library: ctypes.CDLL) -> None:
        """Takes the function and the defaults from the library."""
        self.function = getattr(library, f"ptl_{self.name}")
        self.function.restype = c_int
        frame = self.frame()
        for field, init in self.inits:
            struct = getattr(frame, field) if field else frame
            getattr(library, init)(ctypes.byref(struct))
            if struct.struct_size != ctypes.sizeof(struct):
                raise ImportError(f"pantile: {init} knows {struct.struct_size} bytes, the Python package "
                                  f"{ctypes.sizeof(struct)}; library and package are of different versions")
        self.template = bytes(frame)
        for name, argument in self.arguments.items():
            if not argument.kind.is_number:
                continue
            default = NUMBERS[argument.kind].from_buffer_copy(self.template, argument.offset).value
            absent = default != default  # NaN stands for "not given"
            self.arguments[name] = replace(argument, kind=Kind.OPTIONAL_FLOAT if absent else argument.kind,
                                           default=None if absent else default)


_HSTU_FIRST = ("seq_offsets_q scaling_seqlen alpha num_targets num_contexts seq_offsets_k attn_scale "
               "max_seqlen_q max_seqlen_k window_left window_right target_group_size")
_HSTU_INIT = ("params", "ptl_hstu_params_init"), ("grads", "ptl_hstu_grads_init")
_PAGES = "k_pages v_pages page_offsets page_ids last_page_lens"
_POSITION_TIME: dict[str, Any] = dict(frame=JaggedPositionTime, inits=(("", "ptl_jagged_position_time_init"),))

_NSA: dict[str, Any] = dict(frame=NsaParams, inits=(("", "ptl_nsa_params_init"),))
_NSA_BLOCKS = "block stride select_block"
_NSA_SEQUENCES = "seq_offsets_q seq_offsets_k seqlens_k"
_ALIKE = "block stride seqlens_k page_table page_table_c"  # of NsaAppendParams and NsaParams
_NSA_CACHES = "k_pages v_pages kc_pages vc_pages"


def _nsa(used: str) -> dict[str, Any]:
    """For an operator over NsaParams that uses these fields and its results."""
    unused = [name for name, _ in NsaParams._fields_ if name not in used.split()]
    return dict(_NSA, without=" ".join(unused))


def _rows(name: str, values: str) -> Output:
    return Output(name, like="q", drop=1, last=values, optional=True)


def _sums(name: str) -> Output:
    return Output(name, like="q", drop=1, dtype=DType.F32, optional=True)


_SCORES = [Output("importance", like="q", dtype=DType.F32, given=True, optional=True),
           Output("idx", like="q", dtype=DType.I32, given=True, optional=True),
           Output("nsel", like="q", dtype=DType.I32, given=True, optional=True)]


def _nsa_results(values: str) -> list[Output]:
    """Of the whole operator."""
    return [Output("out", like="q", drop=1, last=values), _rows("out_cmp", values), _rows("out_slc", values),
            _rows("out_swa", values), _sums("lse_cmp"), _sums("lse_slc"), _sums("lse_swa"), *_SCORES]


OPERATORS = {operator.name: operator for operator in [
    Operator("hstu_forward", HstuParams, inits=(("", "ptl_hstu_params_init"),), required="q k v",
             first=_HSTU_FIRST, outputs=[Output("out", like="q", drop=1, last="v")]),
    Operator("hstu_backward", HstuBackward, inits=_HSTU_INIT, call="params grads",
             required="dout q k v", first=_HSTU_FIRST, without=f"out {_PAGES}",
             outputs=[Output("dq", like="q"), Output("dk", like="k"), Output("dv", like="v"),
                      Output("dbias", like="attn_bias", optional=True),
                      Output("dpos_table", like="pos_table", optional=True),
                      Output("dtime_table", like="time_table", optional=True),
                      Output("ds", like="q", drop=2, dtype=DType.F32, optional=True)]),
    Operator("hstu_kv_append", HstuKvAppend, inits=(("", "ptl_hstu_kv_append_params_init"),),
             required="k v seq_offsets n_cached k_pages v_pages page_offsets page_ids",
             mutated="k_pages v_pages", outputs=[]),
    Operator("jagged_complete_cumsum", JaggedCumsum, call="lengths offsets", required="lengths",
             outputs=[Output("offsets", like="lengths", given=True)], context=False),
    Operator("jagged_resize", JaggedResize, call="x align pad out", required="x",
             outputs=[Output("out", like="x", given=True)]),
    Operator("jagged_concat", JaggedConcat, call="left right n_prefix out", required="left right",
             outputs=[Output("out", like="left", given=True)]),
    Operator("jagged_split", JaggedSplit, call="x n_prefix left right", required="x",
             outputs=[Output("left", like="x", given=True), Output("right", like="x", given=True)]),
    Operator("jagged_replace_last", JaggedReplaceLast, call="x last out", required="x last",
             outputs=[Output("out", like="x")]),
    Operator("jagged_broadcast_add", JaggedBroadcastAdd, call="x d out", required="x d",
             outputs=[Output("out", like="x")]),
    Operator("jagged_sum", JaggedSum, call="x out", required="x",
             outputs=[Output("out", like="x", given=True)]),
    Operator("jagged_position_time_forward", **_POSITION_TIME, required="emb pos_w seq_offsets",
             without="dout demb dpos_w dts_w", outputs=[Output("out", like="emb")]),
    Operator("jagged_position_time_backward", **_POSITION_TIME, required="dout pos_w seq_offsets",
             without="emb out", outputs=[Output("demb", like="dout", optional=True),
                                         Output("dpos_w", like="pos_w", optional=True),
                                         Output("dts_w", like="ts_w", optional=True)]),
    Operator("attention_forward", AttentionParams, inits=(("", "ptl_attention_params_init"),), required="q k v",
             first="seq_offsets_q", outputs=[Output("out", like="q", drop=1, last="v"), _sums("lse")]),
    Operator("nsa_compress", NsaCompressParams, inits=(("", "ptl_nsa_compress_params_init"),), required="x",
             outputs=[Output("y", like="x", given=True),
                      Output("seq_offsets_y", like="x", dtype=DType.I64, given=True, optional=True)]),
    Operator("nsa_append", NsaAppendParams, inits=(("", "ptl_nsa_append_params_init"),),
             required="seqlens_old seqlens_k", mutated=f"{_NSA_CACHES} k_ring v_ring", outputs=[]),
    Operator("nsa_compressed_attention", **_nsa(
             f"{_NSA_BLOCKS} {_NSA_SEQUENCES} q q_cmp kc vc seq_offsets_kc page_table_c topk n_init n_local scale "
             "score pool order score_dtype lse_in count"),
             required="q kc", first="vc seq_offsets_q", outputs=[_rows("out_cmp", "vc"), _sums("lse_cmp"), *_SCORES]),
    Operator("nsa_select", **_nsa(f"{_NSA_BLOCKS} {_NSA_SEQUENCES} importance count topk n_init n_local order"),
             required="importance", first="seq_offsets_q",
             outputs=[Output("idx", like="importance", dtype=DType.I32, given=True),
                      Output("nsel", like="importance", drop=1, dtype=DType.I32, optional=True)]),
    Operator("nsa_attend", **_nsa(
             f"{_NSA_BLOCKS} {_NSA_SEQUENCES} q k v k_swa v_swa idx page_table window dense_len scale"),
             required="q k v", first="idx seq_offsets_q",
             outputs=[_rows("out_slc", "v"), _rows("out_swa", "v"), _sums("lse_slc"), _sums("lse_swa")]),
    Operator("nsa_combine", **_nsa("gates out_cmp out_slc out_swa gate_act"), required="gates",
             first="out_cmp out_slc out_swa", outputs=[Output("out", like="out_slc out_cmp out_swa")]),
    Operator("nsa_forward", **_NSA, required="q k v gates", first="kc vc seq_offsets_q",
             outputs=_nsa_results("v")),
    Operator("nsa_decode", NsaDecode, call="append params", required="q gates seqlens_old seqlens_k k_pages v_pages",
             inits=(("append", "ptl_nsa_append_params_init"), ("params", "ptl_nsa_params_init")),
             first="k v seq_offsets_q kc_pages vc_pages page_table page_table_c", mutated=_NSA_CACHES,
             without="kc vc seq_offsets seq_offsets_k seq_offsets_kc k_ring v_ring slots",
             copies={**{f"append.{name}": f"params.{name}" for name in _ALIKE.split()},
                     **{f"append.{name}": f"params.{name[:-len('_pages')]}" for name in _NSA_CACHES.split()},
                     "params.seq_offsets_q": "append.seq_offsets"},
             outputs=_nsa_results("v_pages")),
]}
