"""Softmax and its logarithm, with their backward, where they reach the executor undecomposed."""

from __future__ import annotations

import torch

from thunder.executors.nvfuser.builder import Builder
from thunder.executors.nvfuser.definition import Operand, TensorValue
from thunder.executors.nvfuser.lowering import Kind, Lowering


def _shifted(builder: Builder, value: Operand, dim: int) -> TensorValue:
    held = builder.held(value, builder.dtype)
    return builder.binary("sub", held, builder.reduce("max", held, dim, True))


def softmax(builder: Builder, self: Operand, dim: int, half_to_float: bool) -> TensorValue:
    """Computes exp(x - max) / sum(exp(x - max))."""
    powers = builder.unary("exp", _shifted(builder, self, dim))
    return builder.binary("truediv", powers, builder.reduce("sum", powers, dim, True))


def log_softmax(builder: Builder, self: Operand, dim: int, half_to_float: bool) -> TensorValue:
    """Computes x - max - log(sum(exp(x - max)))."""
    shifted = _shifted(builder, self, dim)
    total = builder.reduce("sum", builder.unary("exp", shifted), dim, True)
    return builder.binary("sub", shifted, builder.unary("log", total))


def softmax_backward(
    builder: Builder, grad_output: Operand, output: Operand, dim: int, input_dtype: torch.dtype
) -> TensorValue:
    """Computes g·y - y·sum(g·y)."""
    product = builder.binary("mul", grad_output, output)
    total = builder.reduce("sum", product, dim, True)
    return builder.binary("sub", product, builder.binary("mul", output, total))


def log_softmax_backward(
    builder: Builder, grad_output: Operand, output: Operand, dim: int, input_dtype: torch.dtype
) -> TensorValue:
    """Computes g - exp(y)·sum(g)."""
    gradient = builder.held(grad_output, builder.dtype)
    total = builder.reduce("sum", gradient, dim, True)
    powers = builder.unary("exp", output)
    return builder.binary("sub", gradient, builder.binary("mul", powers, total))


def _refuse_number(result: torch.Tensor, self: torch.Tensor, *_: object) -> str | None:
    return "it takes the softmax of a single number" if self.ndim == 0 else None


LOWERINGS: dict[str, Lowering] = {
    name: Lowering(lower=lower, kind=Kind.REDUCTION, refuse=_refuse_number)
    for name, lower in {
        "aten._softmax.default": softmax,
        "aten._log_softmax.default": log_softmax,
        "aten._softmax_backward_data.default": softmax_backward,
        "aten._log_softmax_backward_data.default": log_softmax_backward,
    }.items()
}
