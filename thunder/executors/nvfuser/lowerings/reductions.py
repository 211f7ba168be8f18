"""Reductions and scans. Low precision is reduced in float32, integers as ATen does in int64."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import torch

from thunder.executors.nvfuser.builder import Builder, shape_of
from thunder.executors.nvfuser.definition import Number, Operand, TensorValue
from thunder.executors.nvfuser.lowering import Kind, Lowering
from thunder.executors.nvfuser.sizes import count, normalized

Dims = int | Sequence[int] | None


def sum_dims(
    builder: Builder,
    self: Operand,
    dim: Dims = None,
    keepdim: bool = False,
    dtype: torch.dtype | None = None,
) -> TensorValue:
    """Adds up over `dim`, in the dtype of the result."""
    return builder.reduce("sum", builder.held(self, builder.dtype), dim, keepdim)


def sum_all(builder: Builder, self: Operand, dtype: torch.dtype | None = None) -> TensorValue:
    """Adds up everything."""
    return sum_dims(builder, self)


def mean_dims(
    builder: Builder,
    self: Operand,
    dim: Dims = None,
    keepdim: bool = False,
    dtype: torch.dtype | None = None,
) -> TensorValue:
    """Averages over `dim`."""
    total = sum_dims(builder, self, dim, keepdim)
    shape = shape_of(self)
    return builder.divided_by_count(total, shape, normalized(dim, len(shape)))


def mean_all(builder: Builder, self: Operand, dtype: torch.dtype | None = None) -> TensorValue:
    """Averages everything."""
    return mean_dims(builder, self)


def _refuse_symbolic_count(
    result: torch.Tensor, self: torch.Tensor, dim: Dims = None, *_: Any, **__: Any
) -> str | None:
    if count(self.shape, normalized(dim, self.ndim)) is None:
        return "the number of elements that it averages is symbolic"
    return None


def _extreme(operator: str) -> Callable[..., TensorValue]:
    def lower(
        builder: Builder, self: Operand, dim: Dims = None, keepdim: bool = False
    ) -> TensorValue:
        if builder.dtype is not torch.bool:
            return builder.reduce(operator, builder.held(self, builder.dtype), dim, keepdim)
        extreme = builder.reduce(operator, builder.held(self, torch.int32), dim, keepdim)
        return builder.held(extreme, torch.bool)

    return lower


def product_all(builder: Builder, self: Operand, dtype: torch.dtype | None = None) -> TensorValue:
    """Multiplies everything."""
    return builder.reduce("prod", builder.held(self, builder.dtype), None, False)


def product(
    builder: Builder,
    self: Operand,
    dim: Dims,
    keepdim: bool = False,
    dtype: torch.dtype | None = None,
) -> TensorValue:
    """Multiplies over `dim`."""
    return builder.reduce("prod", builder.held(self, builder.dtype), dim, keepdim)


def any_dims(
    builder: Builder, self: Operand, dim: Dims = None, keepdim: bool = False
) -> TensorValue:
    """Says whether any element is not zero."""
    truth = builder.held(builder.exact(self), torch.bool)
    total = builder.reduce("sum", builder.held(truth, torch.int64), dim, keepdim)
    return builder.held(total, torch.bool)


def all_dims(
    builder: Builder, self: Operand, dim: Dims = None, keepdim: bool = False
) -> TensorValue:
    """Says whether no element is zero."""
    truth = builder.held(builder.exact(self), torch.bool)
    false = builder.emit("logical_not", truth, dtype=torch.bool, shape=truth.shape)
    total = builder.reduce("sum", builder.held(false, torch.int64), dim, keepdim)
    return builder.compare("eq", total, 0)


def variance(
    builder: Builder,
    self: Operand,
    dim: Dims = None,
    correction: Number | None = None,
    keepdim: bool = False,
) -> TensorValue:
    """Computes the variance over `dim`."""
    return variance_and_mean(builder, self, dim, correction, keepdim)[0]


def standard_deviation(
    builder: Builder,
    self: Operand,
    dim: Dims = None,
    correction: Number | None = None,
    keepdim: bool = False,
) -> TensorValue:
    """Computes the standard deviation over `dim`."""
    return builder.unary("sqrt", variance(builder, self, dim, correction, keepdim))


def variance_and_mean(
    builder: Builder,
    self: Operand,
    dim: Dims = None,
    correction: Number | None = None,
    keepdim: bool = False,
) -> tuple[TensorValue, TensorValue]:
    """Computes variance and mean over `dim`, by Welford's algorithm."""
    value = builder.held(self, builder.dtype)
    return builder.var_mean(value, dim, 1 if correction is None else int(correction), keepdim)


def _refuse_variance(
    result: Any,
    self: torch.Tensor,
    dim: Dims = None,
    correction: Number | None = None,
    keepdim: bool = False,
) -> str | None:
    correction = 1 if correction is None else correction
    elements = count(self.shape, normalized(dim, self.ndim))
    if correction != int(correction):
        return "its correction is not an integer"
    if self.ndim == 0:
        return "it takes the variance of a single number"
    if elements is not None and elements <= correction:
        return "it divides by zero: fewer elements than its correction needs"
    return None


def logsumexp(builder: Builder, self: Operand, dim: Dims, keepdim: bool = False) -> TensorValue:
    """Computes log(sum(exp(x))), shifted by the largest element where that is finite."""
    value = builder.held(self, builder.dtype)
    largest = builder.reduce("max", value, dim, True)
    infinite = builder.emit("isinf", largest, dtype=torch.bool, shape=largest.shape)
    shift = builder.where(infinite, 0, largest)
    powers = builder.unary("exp", builder.binary("sub", value, shift))
    logarithm = builder.unary("log", builder.reduce("sum", powers, dim, True))
    result = builder.binary("add", logarithm, shift)
    dims = normalized(dim, len(value.shape))
    if keepdim or not dims:
        return result
    shape = tuple(size for place, size in enumerate(result.shape) if place not in dims)
    return builder.emit("squeeze", result, dims, dtype=result.dtype, shape=shape)


def vector_norm(
    builder: Builder,
    self: Operand,
    ord: Number = 2,
    dim: Dims = None,
    keepdim: bool = False,
    dtype: torch.dtype | None = None,
) -> TensorValue:
    """Computes the 1-, 2- or infinity-norm."""
    value = builder.held(self, builder.dtype)
    if ord == 2:
        squares = builder.binary("mul", value, value)
        return builder.unary("sqrt", builder.reduce("sum", squares, dim, keepdim))
    size = builder.unary("abs", value)
    return builder.reduce("sum" if ord == 1 else "max", size, dim, keepdim)


def _refuse_norm(
    result: torch.Tensor,
    self: torch.Tensor,
    ord: Number = 2,
    dim: Dims = None,
    keepdim: bool = False,
    dtype: torch.dtype | None = None,
) -> str | None:
    return None if ord in (1, 2, math.inf) else "norms are translated for orders 1, 2 and infinity"


def cumulative_sum(
    builder: Builder, self: Operand, dim: int, dtype: torch.dtype | None = None
) -> TensorValue:
    """Adds up along `dim`, keeping every intermediate sum."""
    value = builder.held(self, builder.dtype)
    if not value.shape:
        return builder.binary("mul", value, 1)
    return builder.emit(
        "cumsum", value, dim % len(value.shape), dtype=value.dtype, shape=value.shape
    )


def _entry(
    lower: Callable[..., Any], refuse: Callable[..., str | None] = lambda *_, **__: None
) -> Lowering:
    return Lowering(lower=lower, kind=Kind.REDUCTION, refuse=refuse)


LOWERINGS: dict[str, Lowering] = {
    "aten.sum.default": _entry(sum_all),
    "aten.sum.dim_IntList": _entry(sum_dims),
    "aten.mean.default": _entry(mean_all, _refuse_symbolic_count),
    "aten.mean.dim": _entry(mean_dims, _refuse_symbolic_count),
    "aten.amax.default": _entry(_extreme("max")),
    "aten.amin.default": _entry(_extreme("min")),
    "aten.max.default": _entry(_extreme("max")),
    "aten.min.default": _entry(_extreme("min")),
    "aten.prod.default": _entry(product_all),
    "aten.prod.dim_int": _entry(product),
    "aten.any.default": _entry(any_dims),
    "aten.any.dim": _entry(any_dims),
    "aten.any.dims": _entry(any_dims),
    "aten.all.default": _entry(all_dims),
    "aten.all.dim": _entry(all_dims),
    "aten.all.dims": _entry(all_dims),
    "aten.var.correction": _entry(variance, _refuse_variance),
    "aten.std.correction": _entry(standard_deviation, _refuse_variance),
    "aten.var_mean.correction": _entry(variance_and_mean, _refuse_variance),
    "aten.logsumexp.default": _entry(logsumexp),
    "aten.linalg_vector_norm.default": _entry(vector_norm, _refuse_norm),
    "aten.cumsum.default": _entry(cumulative_sum),
}
