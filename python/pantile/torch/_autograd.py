"""Gives operators their gradients. torch.library's autograd serves compiled and exported programs; it takes
a hundred microseconds a call, so that eager calls run the kernel in an autograd.Function instead. Both
share one formula.

A formula is backward(arguments, needs, *grads) -> {argument: gradient}. arguments are those of the call by
name, but of differentiable tensors that are not in `keep` only the shape; needs says which gradients are
wanted.
"""

from __future__ import annotations

from typing import Any, Callable

import torch
from torch.autograd.function import once_differentiable

from .._abi import OPERATORS
from ._register import TorchOperator

Formula = Callable[..., dict[str, torch.Tensor]]


def _library_autograd(name: str, tensors: tuple[str, ...], keep: tuple[str, ...], formula: Formula) -> None:
    names = TorchOperator(name, OPERATORS[name]).names

    def setup_context(ctx: Any, inputs: tuple, output: Any) -> None:
        arguments = {key: value for key, value in zip(names, inputs) if value is not None}
        for key in arguments.keys() & set(tensors) - set(keep):
            arguments[key] = arguments[key].shape
        ctx.saved = [key for key, value in arguments.items() if isinstance(value, torch.Tensor)]
        ctx.save_for_backward(*(arguments.pop(key) for key in ctx.saved))
        ctx.arguments = arguments

    def backward(ctx: Any, *grads: torch.Tensor) -> tuple:
        arguments = {**ctx.arguments, **dict(zip(ctx.saved, ctx.saved_tensors))}
        result = formula(arguments, dict(zip(names, ctx.needs_input_grad)), *grads)
        return tuple(result.get(key) if needed else None for key, needed in zip(names, ctx.needs_input_grad))

    torch.library.register_autograd(f"pantile::{name}", backward, setup_context=setup_context)


def _eager_function(kernel: Callable, keep: frozenset[str], formula: Formula) -> type[torch.autograd.Function]:

    class Eager(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, arguments: dict[str, Any], names: list[str], *values: torch.Tensor) -> Any:
            result = kernel(arguments)
            ctx.save_for_backward(*[arguments.pop(name) for name in names if name in keep])
            for name in names:
                if name in arguments:
                    arguments[name] = arguments[name].shape
            ctx.names, ctx.arguments = names, arguments
            return result

        @staticmethod
        @once_differentiable
        def backward(ctx: Any, *grads: torch.Tensor) -> tuple:
            kept = [name for name in ctx.names if name in keep]
            needs = dict(zip(ctx.names, ctx.needs_input_grad[2:]))
            result = formula({**ctx.arguments, **dict(zip(kept, ctx.saved_tensors))}, needs, *grads)
            return (None, None, *(result.get(name) if needs[name] else None for name in ctx.names))

    return Eager


def differentiable(name: str, tensors: tuple[str, ...], formula: Formula, keep: tuple[str, ...] = (),
                   kernel: Callable[[dict[str, Any]], Any] | None = None) -> Callable[[dict[str, Any]], Any]:
    """The function of the operator's arguments, with a gradient for those in `tensors`. Arguments that are
    None must be left out; the dict is not the caller's afterwards. kernel: what eager calls run."""
    operator = getattr(torch.ops.pantile, name).default
    private = getattr(torch.ops.pantile, f"_{name}").default
    kernel = kernel or (lambda arguments: private(**arguments))
    _library_autograd(name, tensors, keep, formula)
    apply = _eager_function(kernel, frozenset(keep), formula).apply

    def call(arguments: dict[str, Any]) -> Any:
        if torch.compiler.is_compiling():
            return operator(**arguments)
        if torch.is_grad_enabled():
            names = [key for key in tensors if key in arguments]
            for key in names:
                if arguments[key].requires_grad:
                    return apply(arguments, names, *[arguments[key] for key in names])
        return kernel(arguments)

    return call
