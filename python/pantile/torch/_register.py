"""Hands the operators of _abi.py to torch_operators.c, which registers them as torch.ops.pantile.*: schemas,
fake kernels, and how arguments fill the frames.

Each operator exists under two names: `name`, which compiled and exported programs contain and to which
_autograd.py gives its gradient, and `_name`, the kernel alone, which eager calls take.
"""

from __future__ import annotations

import ctypes
from ctypes import c_char_p, c_int32, c_void_p
from typing import Any

import torch

from .. import _abi
from .._abi import DType, Kind
from .._library import load

# Kinds of arguments that only torch operators have. WANTED_SHAPE: empty for a result that is not wanted.
SHAPE, WANT, WANTED_SHAPE = 7, 8, 9
TORCH_DTYPES = {DType.F32: torch.float32, DType.I32: torch.int32, DType.I64: torch.int64}


# torch's functionalization of operators that write passes arguments by name, and has a `mode` of its own.
RENAMED = {"mode": "compress_mode"}


class _Argument(ctypes.Structure):
    _fields_ = [("name", c_char_p), ("kind", c_int32), ("offset", c_int32)]


class _Output(ctypes.Structure):
    _fields_ = [("offset", c_int32), ("like", c_int32 * 3),
                *((name, c_int32) for name in ("drop", "last", "dtype", "argument"))]


class _Parameter(ctypes.Structure):
    _fields_ = [("offset", c_int32), ("by_value", c_int32)]


class _Copy(ctypes.Structure):
    _fields_ = [("source", c_int32), ("target", c_int32), ("bytes", c_int32)]


class _Operator(ctypes.Structure):
    _fields_ = [("name", c_char_p), ("schema", c_char_p), ("call", c_void_p), ("frame", c_char_p),
                ("arguments", ctypes.POINTER(_Argument)), ("outputs", ctypes.POINTER(_Output)),
                *((name, c_int32) for name in ("frame_bytes", "n_arguments", "n_outputs", "n_parameters",
                                               "wants_context")),
                ("parameters", _Parameter * 5), ("n_copies", c_int32), ("copies", _Copy * 12)]


class TorchOperator:
    """A torch operator over an operator of _abi.py. only: its arguments, if not all; its results are then
    those that are always wanted. into: these are arguments, which are written."""

    def __init__(self, name: str, operator: _abi.Operator, only: tuple[str, ...] = (), into: bool = False):
        self.name, self.operator = name, operator
        self.outputs = outputs = [o for o in operator.outputs.values() if not (only and o.optional)]
        self.written = [output.name for output in outputs if into and not output.optional]
        self.results = [output for output in outputs if output.name not in self.written]
        arguments = [(RENAMED.get(a.name, a.name), a.kind, a.name) for a in operator.arguments.values() if not only or a.name in only]
        # (name in the schema, kind, field of the frame)
        self.arguments = [
            *(argument for argument in arguments if argument[1] is Kind.TENSOR),
            *((output, Kind.TENSOR, output) for output in self.written),
            *((f"{o.name}_shape", SHAPE, o.name) for o in outputs if o.given and not o.optional),
            *(argument for argument in arguments if argument[1] is not Kind.TENSOR),
            *((f"{o.name}_shape", WANTED_SHAPE, o.name) if o.given else (f"want_{o.name}", WANT, o.name)
              for o in outputs if o.optional)]
        self.names = [name for name, _, _ in self.arguments]

    def _declare(self, name: str, kind: int) -> str:
        argument = self.operator.arguments.get({new: old for old, new in RENAMED.items()}.get(name, name))
        if name in self.written or argument and argument.mutated:
            return f"Tensor({name}!) {name}" if kind == Kind.TENSOR else f"Tensor({name}!)? {name}=None"
        default = argument and argument.default
        return {Kind.TENSOR: f"Tensor {name}", Kind.OPTIONAL_TENSOR: f"Tensor? {name}=None",
                Kind.DATA: f"Tensor? {name}=None", Kind.INT: f"SymInt {name}={default}",
                Kind.ENUM: f"int {name}={default}", Kind.FLOAT: f"float {name}={default}",
                Kind.OPTIONAL_FLOAT: f"float? {name}=None", SHAPE: f"SymInt[] {name}",
                WANT: f"bool {name}=False", WANTED_SHAPE: f"SymInt[] {name}=[]"}[kind]

    def defaults(self) -> dict[str, Any]:
        """The arguments in their order, as a call without them has them; tensors None."""
        arguments = self.operator.arguments
        special = {SHAPE: (), WANT: False, WANTED_SHAPE: ()}
        return {name: arguments[field].default if field in arguments else special.get(kind)
                for name, kind, field in self.arguments}

    def schema(self) -> str:
        arguments = ", ".join(self._declare(name, kind) for name, kind, _ in self.arguments)
        results = [f"Tensor {output.name}" for output in self.results]
        return f"{self.name}({arguments}) -> {'Tensor' if len(results) == 1 else '(' + ', '.join(results) + ')'}"

    def raw(self) -> _Operator:
        operator = self.operator
        place = {name: offset for name, (offset, _) in operator.places.items()}
        arguments = [_Argument(name.encode(), kind, place[field]) for name, kind, field in self.arguments]
        outputs = [_Output(place[o.name], (c_int32 * 3)(*([place[name] for name in o.like.split()] + [-1, -1])[:3]),
                           o.drop, -1 if o.last is None else place[o.last], o.dtype or 0, o.name in self.written)
                   for o in self.outputs]
        parameters = [_Parameter(offset, by_value) for offset, _, by_value in operator.parameters]
        return _Operator(
            self.name.encode(), self.schema().encode(), ctypes.cast(operator.function, c_void_p), operator.template,
            (_Argument * len(arguments))(*arguments), (_Output * len(outputs))(*outputs), len(operator.template),
            len(arguments), len(outputs), len(parameters), operator.context, (_Parameter * 5)(*parameters),
            len(operator.copies), (_Copy * 12)(*(_Copy(*copy) for copy in operator.copies)))

    def fake(self, *positional: Any, **named: Any) -> Any:
        """Results without memory, for tracing."""
        values = {**dict(zip(self.names, positional)), **named}
        shapes: Any = {name: value.shape for name, value in values.items() if isinstance(value, torch.Tensor)}
        results = []
        for output in self.results:
            given = values.get(f"{output.name}_shape")
            if output.optional and not (given if output.given else values.get(f"want_{output.name}")):
                results.append(values[self.names[0]].new_empty(0, dtype=torch.float32))
                continue
            like = values[output.model(shapes)]
            shape = given if output.given else output.shape(shapes)
            results.append(like.new_empty(shape, dtype=TORCH_DTYPES[output.dtype] if output.dtype else like.dtype))
        return results[0] if len(results) == 1 else tuple(results) if results else None


_keep: list[Any] = []  # what the C side keeps the addresses of
_library = torch.library.Library("pantile", "IMPL")


def _register() -> None:
    operators = []
    for operator in _abi.OPERATORS.values():
        operators += [TorchOperator(operator.name, operator), TorchOperator(f"_{operator.name}", operator)]
    forward, backward = _abi.OPERATORS["hstu_forward"], _abi.OPERATORS["hstu_backward"]
    operators += [TorchOperator(f"{operator.name}_into", operator, into=True) for operator in (forward, backward)]
    # Every argument in a schema costs a call 80 ns, given or not.
    operators += [TorchOperator(f"_{name}_usual", _abi.OPERATORS[name], only=only) for name, only in USUAL.items()]

    raw = (_Operator * len(operators))(*(operator.raw() for operator in operators))
    _keep.append(raw)
    bridge = load("libpantile_torch.so")
    bridge.ptl_torch_register.restype = c_char_p
    missing = bridge.ptl_torch_register(b"pantile", raw, len(operators))
    if missing is not None:
        raise ImportError(f"pantile.torch: torch {torch.__version__} lacks {missing.decode()}; "
                          "torch 2.10 or newer is needed")
    for registered in operators:
        torch.library.register_fake(f"pantile::{registered.name}", registered.fake)
        if registered.name.startswith("_"):
            _library.impl(registered.name, torch.library.fallthrough_kernel, "Autograd")


_NSA_USUAL = ("seq_offsets_q", "page_table", "page_table_c", "block", "stride", "select_block", "topk", "n_init",
              "n_local", "window", "scale")
HSTU_USUAL = ("q", "k", "v", "seq_offsets_q", "scaling_seqlen", "alpha", "num_targets", "num_contexts")
# Arguments of operators that exist a second time with these alone, and with the results that are always made.
USUAL = {"hstu_forward": HSTU_USUAL,
         "attention_forward": ("q", "k", "v", "seq_offsets_q", "seqlens_k", "page_table", "scale", "window"),
         "nsa_forward": ("q", "k", "v", "gates", "kc", "vc", "seq_offsets_kc", "seqlens_k", *_NSA_USUAL),
         "nsa_decode": ("q", "gates", "seqlens_old", "seqlens_k", "k", "v", "k_pages", "v_pages", "kc_pages",
                        "vc_pages", *_NSA_USUAL)}
_register()
