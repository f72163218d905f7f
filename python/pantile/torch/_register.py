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
from .._abi import Kind
from .._library import load

SHAPE, WANT = 7, 8  # kinds of arguments that only torch operators have


class _Argument(ctypes.Structure):
    _fields_ = [("name", c_char_p), ("kind", c_int32), ("offset", c_int32)]


class _Output(ctypes.Structure):
    _fields_ = [(name, c_int32) for name in ("offset", "like", "drop", "last", "f32", "argument")]


class _Parameter(ctypes.Structure):
    _fields_ = [("offset", c_int32), ("by_value", c_int32)]


class _Operator(ctypes.Structure):
    _fields_ = [("name", c_char_p), ("schema", c_char_p), ("call", c_void_p), ("frame", c_char_p),
                ("arguments", ctypes.POINTER(_Argument)), ("outputs", ctypes.POINTER(_Output)),
                *((name, c_int32) for name in ("frame_bytes", "n_arguments", "n_outputs", "n_parameters",
                                               "wants_context")),
                ("parameters", _Parameter * 5)]


class TorchOperator:
    """A torch operator over an operator of _abi.py. only: its arguments, if not all. into: results that are
    always wanted are arguments, which are written."""

    def __init__(self, name: str, operator: _abi.Operator, only: tuple[str, ...] = (), into: bool = False):
        self.name, self.operator = name, operator
        outputs = operator.outputs.values()
        self.written = [output.name for output in outputs if into and not output.optional]
        self.results = [output for output in outputs if output.name not in self.written]
        arguments = [(a.name, a.kind, a.name) for a in operator.arguments.values() if not only or a.name in only]
        # (name, kind, field of the frame)
        self.arguments = [
            *(argument for argument in arguments if argument[1] is Kind.TENSOR),
            *((output, Kind.TENSOR, output) for output in self.written),
            *((f"{output.name}_shape", SHAPE, output.name) for output in outputs if output.given),
            *(argument for argument in arguments if argument[1] is not Kind.TENSOR),
            *((f"want_{output.name}", WANT, output.name) for output in outputs if output.optional)]
        self.names = [name for name, _, _ in self.arguments]

    def _declare(self, name: str, kind: int) -> str:
        argument = self.operator.arguments.get(name)
        if name in self.written or argument and argument.mutated:
            return f"Tensor({name}!) {name}"
        default = argument and argument.default
        return {Kind.TENSOR: f"Tensor {name}", Kind.OPTIONAL_TENSOR: f"Tensor? {name}=None",
                Kind.DATA: f"Tensor? {name}=None", Kind.INT: f"SymInt {name}={default}",
                Kind.ENUM: f"int {name}={default}", Kind.FLOAT: f"float {name}={default}",
                Kind.OPTIONAL_FLOAT: f"float? {name}=None", SHAPE: f"SymInt[] {name}",
                WANT: f"bool {name}=False"}[kind]

    def schema(self) -> str:
        arguments = ", ".join(self._declare(name, kind) for name, kind, _ in self.arguments)
        results = [f"Tensor {output.name}" for output in self.results]
        return f"{self.name}({arguments}) -> {'Tensor' if len(results) == 1 else '(' + ', '.join(results) + ')'}"

    def raw(self) -> _Operator:
        operator = self.operator
        place = {name: offset for name, (offset, _) in operator.places.items()}
        arguments = [_Argument(name.encode(), kind, place[field]) for name, kind, field in self.arguments]
        outputs = [_Output(place[o.name], place[o.like], o.drop, -1 if o.last is None else place[o.last], o.f32,
                           o.name in self.written) for o in operator.outputs.values()]
        parameters = [_Parameter(offset, by_value) for offset, _, by_value in operator.parameters]
        return _Operator(
            self.name.encode(), self.schema().encode(), ctypes.cast(operator.function, c_void_p), operator.template,
            (_Argument * len(arguments))(*arguments), (_Output * len(outputs))(*outputs), len(operator.template),
            len(arguments), len(outputs), len(parameters), operator.context, (_Parameter * 5)(*parameters))

    def fake(self, *positional: Any, **named: Any) -> Any:
        """Results without memory, for tracing."""
        values = {**dict(zip(self.names, positional)), **named}
        shapes: Any = {name: value.shape for name, value in values.items() if isinstance(value, torch.Tensor)}
        results = []
        for output in self.results:
            if output.optional and not values.get(f"want_{output.name}"):
                results.append(values[self.names[0]].new_empty(0, dtype=torch.float32))
                continue
            like = values[output.like]
            shape = values[f"{output.name}_shape"] if output.given else output.shape(shapes)
            results.append(like.new_empty(shape, dtype=torch.float32 if output.f32 else like.dtype))
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
    operators += [TorchOperator("_hstu_forward_usual", forward, only=HSTU_USUAL)]

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


HSTU_USUAL = ("q", "k", "v", "seq_offsets_q", "scaling_seqlen", "alpha", "num_targets", "num_contexts")
_register()
