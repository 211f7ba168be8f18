"""Losses and their backward, where they reach the executor undecomposed."""

from __future__ import annotations

import enum
from collections.abc import Callable
from typing import Any

import torch

from thunder.executors.nvfuser import layout
from thunder.executors.nvfuser.builder import Builder
from thunder.executors.nvfuser.definition import Operand, TensorValue
from thunder.executors.nvfuser.dtypes import INTEGERS
from thunder.executors.nvfuser.lowering import Kind, Lowering
from thunder.executors.nvfuser.lowerings.factories import counter
from thunder.executors.nvfuser.lowerings.indexing import pick
from thunder.executors.nvfuser.sizes import all_concrete, count


class Reduction(enum.IntEnum):
    """How ATen numbers the reductions of a loss."""

    NONE = 0
    MEAN = 1
    SUM = 2


def _reduced(builder: Builder, value: TensorValue, reduction: int) -> TensorValue:
    if reduction == Reduction.NONE:
        return value
    total = builder.reduce("sum", value, None, False)
    if reduction == Reduction.SUM:
        return total
    return builder.divided_by_count(total, value.shape, range(len(value.shape)))


def mse_loss(
    builder: Builder, self: Operand, target: Operand, reduction: int = Reduction.MEAN
) -> TensorValue:
    """Computes (self - target)²."""
    difference = builder.binary("sub", self, target)
    return _reduced(builder, builder.binary("mul", difference, difference), reduction)


def mse_loss_backward(
    builder: Builder, grad_output: Operand, self: Operand, target: Operand, reduction: int
) -> TensorValue:
    """Computes 2·(self - target)·g, divided by the number of elements for a mean."""
    difference = builder.binary("sub", self, target)
    elements = count(difference.shape, range(len(difference.shape))) or 1
    factor = 2 / elements if reduction == Reduction.MEAN else 2
    return builder.binary("mul", builder.binary("mul", difference, factor), grad_output)


def _valid(builder: Builder, target: Operand, ignore_index: int) -> TensorValue:
    return builder.compare("ne", target, ignore_index)


def nll_loss(
    builder: Builder,
    self: Operand,
    target: Operand,
    weight: None,
    reduction: int,
    ignore_index: int,
) -> tuple[TensorValue, Any]:
    """Picks -self[target]; targets equal to `ignore_index` give 0. Also returns their number."""
    dtype = builder.dtype
    source = layout.tensor(builder, self)
    labels = layout.tensor(builder, target)
    valid = _valid(builder, labels, ignore_index)
    safe = builder.where(valid, labels, 0, dtype=labels.dtype)
    dim = len(source.shape) - 1
    column = layout.tensor(builder, layout.unsqueeze(builder, safe, [dim]))
    picked = layout.squeeze(builder, pick(builder, source, dim, column), [dim])
    loss = builder.where(valid, builder.unary("neg", picked), 0)
    number = builder.reduce("sum", builder.held(valid, dtype), None, False)
    if reduction == Reduction.NONE:
        return loss, builder.binary("mul", number, 0)
    total = builder.reduce("sum", loss, None, False)
    if reduction == Reduction.MEAN:
        total = builder.binary("truediv", total, number)
    return total, number


def nll_loss_backward(
    builder: Builder,
    grad_output: Operand,
    self: Operand,
    target: Operand,
    weight: None,
    reduction: int,
    ignore_index: int,
    total_weight: Operand,
) -> TensorValue:
    """Puts -g at the target of each row, without a scatter."""
    dtype = builder.dtype
    labels = layout.tensor(builder, target)
    valid = _valid(builder, labels, ignore_index)
    gradient = builder.held(grad_output, dtype)
    if reduction == Reduction.MEAN:
        gradient = builder.binary("truediv", gradient, total_weight)
    spread = builder.where(valid, builder.unary("neg", gradient), 0)
    rows = len(labels.shape)
    classes = counter(builder, int(builder.result.shape[-1]))
    here = builder.compare("eq", classes, layout.unsqueeze(builder, labels, [rows]))
    return builder.where(here, layout.unsqueeze(builder, spread, [rows]), 0)


def _refuse_symbolic(result: Any, self: torch.Tensor, *_: Any, **__: Any) -> str | None:
    return None if all_concrete(self.shape) else "its sizes are symbolic"


def _refuse_mse_backward(
    result: torch.Tensor, grad_output: torch.Tensor, self: torch.Tensor, *_: Any
) -> str | None:
    return _refuse_symbolic(result, self)


def _refuse_nll(
    result: Any, self: torch.Tensor, target: torch.Tensor, weight: Any, *_: Any
) -> str | None:
    if weight is not None:
        return "it weighs the classes"
    if target.dtype not in INTEGERS:
        return f"its target has dtype {target.dtype}"
    return _refuse_symbolic(result, self)


def _refuse_nll_backward(
    result: Any, grad_output: torch.Tensor, self: torch.Tensor, *rest: Any
) -> str | None:
    return _refuse_nll(result, self, *rest)


def _entry(
    lower: Callable[..., Any],
    refuse: Callable[..., str | None],
    kind: Kind = Kind.REDUCTION,
) -> Lowering:
    return Lowering(lower=lower, kind=kind, refuse=refuse)


LOWERINGS: dict[str, Lowering] = {
    "aten.mse_loss.default": _entry(mse_loss, _refuse_symbolic),
    "aten.mse_loss_backward.default": _entry(mse_loss_backward, _refuse_mse_backward, Kind.COMPUTE),
    "aten.nll_loss_forward.default": _entry(nll_loss, _refuse_nll),
    "aten.nll_loss_backward.default": _entry(nll_loss_backward, _refuse_nll_backward, Kind.COMPUTE),
}
