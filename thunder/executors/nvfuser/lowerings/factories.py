"""Tensors made out of numbers, and the parts of a matrix above or below a diagonal."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch

from thunder.executors.nvfuser.builder import Builder, as_sizes
from thunder.executors.nvfuser.definition import Constant, Literal, Number, Operand, TensorValue
from thunder.executors.nvfuser.dtypes import compute_dtype, rounded
from thunder.executors.nvfuser.layout import tensor, unsqueeze
from thunder.executors.nvfuser.lowering import Kind, Lowering
from thunder.executors.nvfuser.sizes import all_concrete, concrete_shape


def _constant(builder: Builder, number: Number, size: Sequence[Any] | None = None) -> Constant:
    shape = concrete_shape(builder.result.shape)
    sizes = as_sizes(shape if size is None else size)
    dtype = builder.result.dtype
    return Constant(number=rounded(number, dtype), dtype=dtype, shape=shape, sizes=tuple(sizes))


def full(builder: Builder, size: Sequence[Any], fill_value: Number, **_: Any) -> Constant:
    """Fills a shape with a number."""
    return _constant(builder, fill_value, size)


def zeros(builder: Builder, size: Sequence[Any], **_: Any) -> Constant:
    """Fills a shape with zeros."""
    return _constant(builder, 0, size)


def ones(builder: Builder, size: Sequence[Any], **_: Any) -> Constant:
    """Fills a shape with ones."""
    return _constant(builder, 1, size)


def full_like(builder: Builder, self: Operand, fill_value: Number, **_: Any) -> Constant:
    """Fills the shape of another tensor with a number."""
    return _constant(builder, fill_value)


def zeros_like(builder: Builder, self: Operand, **_: Any) -> Constant:
    """Fills the shape of another tensor with zeros."""
    return _constant(builder, 0)


def ones_like(builder: Builder, self: Operand, **_: Any) -> Constant:
    """Fills the shape of another tensor with ones."""
    return _constant(builder, 1)


def scalar_tensor(builder: Builder, s: Number, **_: Any) -> Constant:
    """Makes a zero-dimensional tensor."""
    return _constant(builder, s)


def _refuse_fill(result: torch.Tensor, size: Any, fill_value: Any, **__: Any) -> str | None:
    if not isinstance(fill_value, bool | int | float):
        return "it fills with something that is not a number known now"
    return None


def _refuse_fill_like(result: torch.Tensor, self: Any, fill_value: Any, **__: Any) -> str | None:
    if not all_concrete(result.shape):
        return "it fills a symbolic shape"
    return _refuse_fill(result, None, fill_value)


def _refuse_like(result: torch.Tensor, *_: Any, **__: Any) -> str | None:
    return None if all_concrete(result.shape) else "it fills a symbolic shape"


def _refuse_scalar(result: torch.Tensor, s: Any, **__: Any) -> str | None:
    return _refuse_fill(result, None, s)


def iota(
    builder: Builder, length: Any, *, start: Number = 0, step: Number = 1, **_: Any
) -> TensorValue:
    """Counts from `start` in steps of `step`."""
    dtype = builder.result.dtype
    return _range(builder, start, step, dtype)


def _range(builder: Builder, start: Number, step: Number, dtype: torch.dtype) -> TensorValue:
    # Counted in int64 and scaled afterwards, as ATen does, so that no error accumulates.
    places = counter(builder, int(builder.result.shape[0]))
    compute = compute_dtype(dtype)
    value = builder.held(places, compute)
    if step != 1:
        value = builder.binary("mul", value, step, dtype=compute)
    return value if start == 0 else builder.binary("add", value, start, dtype=compute)


def arange(builder: Builder, *bounds: Number, **_: Any) -> TensorValue:
    """Counts from a start to an end, which is left out."""
    start = bounds[0] if len(bounds) > 1 else 0
    step = bounds[2] if len(bounds) > 2 else 1
    return _range(builder, start, step, builder.result.dtype)


def _refuse_range(result: torch.Tensor, *numbers: Any, **keywords: Any) -> str | None:
    listed = [*numbers, keywords.get("start", 0), keywords.get("step", 1)]
    if not all_concrete(result.shape) or not all(isinstance(n, int | float) for n in listed):
        return "it counts to a symbolic number"
    if result.dtype in (torch.bfloat16, torch.float16):
        return f"it counts in {result.dtype}"
    return None


def _triangle(upper: bool) -> Callable[..., TensorValue]:
    def lower(builder: Builder, self: Operand, diagonal: int = 0) -> TensorValue:
        value = tensor(builder, self)
        rows, columns = value.shape[-2:]
        row, column = counter(builder, int(rows)), counter(builder, int(columns))
        limit = builder.binary("add", unsqueeze(builder, row, [1]), diagonal, dtype=torch.int64)
        kept = builder.compare("ge" if upper else "le", column, limit)
        return builder.where(kept, value, 0)

    return lower


def counter(builder: Builder, length: int) -> TensorValue:
    """Returns the numbers from 0 to `length` - 1."""
    zero, one = Literal(number=0, dtype=torch.int64), Literal(number=1, dtype=torch.int64)
    number = Literal(number=length, dtype=torch.int64)
    return builder.emit("iota", number, zero, one, torch.int64, dtype=torch.int64, shape=(length,))


def _refuse_triangle(result: torch.Tensor, *_: Any, **__: Any) -> str | None:
    return None if all_concrete(result.shape[-2:]) else "it cuts a symbolic shape"


def _entry(lower: Callable[..., Any], refuse: Callable[..., str | None]) -> Lowering:
    return Lowering(lower=lower, kind=Kind.FACTORY, refuse=refuse)


LOWERINGS: dict[str, Lowering] = {
    "aten.full.default": _entry(full, _refuse_fill),
    "aten.zeros.default": _entry(zeros, lambda *_, **__: None),
    "aten.ones.default": _entry(ones, lambda *_, **__: None),
    "aten.full_like.default": _entry(full_like, _refuse_fill_like),
    "aten.zeros_like.default": _entry(zeros_like, _refuse_like),
    "aten.ones_like.default": _entry(ones_like, _refuse_like),
    "aten.scalar_tensor.default": _entry(scalar_tensor, _refuse_scalar),
    "prims.iota.default": _entry(iota, _refuse_range),
    "aten.arange.default": _entry(arange, _refuse_range),
    "aten.arange.start": _entry(arange, _refuse_range),
    "aten.arange.start_step": _entry(arange, _refuse_range),
    "aten.triu.default": Lowering(
        lower=_triangle(True), kind=Kind.COMPUTE, refuse=_refuse_triangle
    ),
    "aten.tril.default": Lowering(
        lower=_triangle(False), kind=Kind.COMPUTE, refuse=_refuse_triangle
    ),
}
