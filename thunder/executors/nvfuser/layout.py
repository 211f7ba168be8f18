"""Shape operators on the values of a fusion: reshape, permute, broadcast, slice, pad."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import torch

from thunder.executors.nvfuser.builder import Builder
from thunder.executors.nvfuser.definition import (
    Constant,
    Literal,
    Number,
    Operand,
    SizeArgument,
    TensorValue,
)
from thunder.executors.nvfuser.dtypes import compute_dtype, rounded
from thunder.executors.nvfuser.sizes import Shape, concrete, is_one, same_shape


def tensor(builder: Builder, value: Operand) -> TensorValue:
    """Returns `value` as a tensor, held as it is."""
    if isinstance(value, TensorValue):
        return value
    dtype = value.dtype if isinstance(value, Constant) else builder.dtype
    return builder.held(value, dtype)


def stored(builder: Builder, value: Operand) -> TensorValue:
    """Returns `value` in its own dtype, for operators before which nvFuser cuts the fusion.

    A cut writes the value to memory, where low precision takes half the space.
    """
    value = builder.real(tensor(builder, value))
    return builder.held(value, value.logical)


def _moved(
    builder: Builder, operator: str, value: TensorValue, *arguments: object, shape: Shape
) -> TensorValue:
    moved = builder.emit(
        operator, value, *arguments, dtype=value.dtype, shape=shape, exact=value.exact
    )
    return replace(moved, logical=value.logical)


def reshape(
    builder: Builder, value: Operand, shape: Shape, sizes: Sequence[SizeArgument]
) -> TensorValue | Constant:
    """Gives `value` another shape.

    Args:
        builder: The fusion.
        value: What to reshape.
        shape: The new shape.
        sizes: The new shape as nvFuser takes it; may hold one -1.
    """
    if isinstance(value, Constant):
        return replace(value, shape=shape, sizes=tuple(sizes))
    value = tensor(builder, value)
    if same_shape(value.shape, shape):
        return value
    value = builder.real(value)
    known = [concrete(size) for size in shape]
    sizes = [size if number is None else number for size, number in zip(sizes, known, strict=True)]
    return _moved(builder, "reshape", value, list(sizes), shape=shape)


def permute(builder: Builder, value: Operand, dims: Sequence[int]) -> TensorValue | Constant:
    """Reorders dimensions; `dims[i]` is where dimension i of the result comes from."""
    dims = [dim % len(dims) for dim in dims]
    if isinstance(value, Constant):
        return replace(
            value,
            shape=tuple(value.shape[dim] for dim in dims),
            sizes=tuple(value.sizes[dim] for dim in dims),
        )
    value = tensor(builder, value)
    if dims == list(range(len(dims))):
        return value
    shape = tuple(value.shape[dim] for dim in dims)
    return _moved(builder, "permute", value, dims, shape=shape)


def unsqueeze(builder: Builder, value: Operand, dims: Sequence[int]) -> TensorValue | Constant:
    """Inserts dimensions of size 1 where the result has `dims`."""
    if isinstance(value, Constant):
        shape, sizes = list(value.shape), list(value.sizes)
        for dim in sorted(dims):
            shape.insert(dim, 1)
            sizes.insert(dim, 1)
        return replace(value, shape=tuple(shape), sizes=tuple(sizes))
    value = tensor(builder, value)
    if not dims:
        return value
    old = iter(value.shape)
    flags = [dim in dims for dim in range(len(value.shape) + len(dims))]
    shape = tuple(1 if flag else next(old) for flag in flags)
    return _moved(builder, "broadcast", value, flags, shape=shape)


def squeeze(builder: Builder, value: Operand, dims: Sequence[int]) -> TensorValue | Constant:
    """Removes those of the dimensions `dims` that have size 1."""
    if not isinstance(value, Constant):
        value = tensor(builder, value)
    kept = [dim for dim, size in enumerate(value.shape) if not (dim in dims and is_one(size))]
    if len(kept) == len(value.shape):
        return value
    shape = tuple(value.shape[dim] for dim in kept)
    if isinstance(value, Constant):
        return replace(value, shape=shape, sizes=tuple(value.sizes[dim] for dim in kept))
    gone = [dim for dim in range(len(value.shape)) if dim not in kept]
    return _moved(builder, "squeeze", value, gone, shape=shape)


def expand(
    builder: Builder, value: Operand, shape: Shape, sizes: Sequence[SizeArgument]
) -> TensorValue | Constant:
    """Broadcasts `value` to `shape`; in `sizes`, nvFuser's form of it, -1 keeps a size."""
    if isinstance(value, Constant):
        lead = len(sizes) - len(value.sizes)
        old = (*sizes[:lead], *value.sizes)
        whole = tuple(o if s == -1 else s for s, o in zip(sizes, old, strict=True))
        return replace(value, shape=shape, sizes=whole)
    value = tensor(builder, value)
    if same_shape(value.shape, shape):
        return value
    lead = len(shape) - len(value.shape)
    numbers = [concrete(size) for size in shape]
    sizes = [
        size if number is None else number for size, number in zip(sizes, numbers, strict=True)
    ]
    dims = list(range(lead, len(shape)))
    return _moved(builder, "broadcast_in_dim", value, sizes, dims, shape=shape)


def slice_one(
    builder: Builder, value: Operand, dim: int, start: int, end: int
) -> TensorValue | Constant:
    """Takes the elements `start` to `end` of one dimension; the sizes must be numbers."""
    if not isinstance(value, Constant):
        value = stored(builder, value)
    if start == 0 and end == value.shape[dim]:
        return value
    shape = (*value.shape[:dim], end - start, *value.shape[dim + 1 :])
    if isinstance(value, Constant):
        sizes = (*value.sizes[:dim], end - start, *value.sizes[dim + 1 :])
        return replace(value, shape=shape, sizes=sizes)
    starts = [start if other == dim else 0 for other in range(len(shape))]
    ends = [end if other == dim else concrete(size) for other, size in enumerate(value.shape)]
    return _moved(builder, "slice", value, starts, ends, shape=shape)


def leaves_one(before: Sequence[int], after: Sequence[int]) -> str | None:
    """Says why nvFuser may not cut a dimension down to one element; None when nothing is.

    nvFuser 0.2.36 then reads the first element in place of the one that was asked for, where
    longer pieces of the same tensor are in the kernel. A dimension that is removed as well, as
    `select` does, is right.

    Args:
        before: Sizes of the tensor that is cut.
        after: Sizes of the piece.
    """
    cut = any(new == 1 and old != 1 for old, new in zip(before, after, strict=True))
    return "it cuts a dimension down to one element, which nvFuser gets wrong" if cut else None


def pad(
    builder: Builder, value: Operand, widths: Sequence[int], number: Number, shape: Shape
) -> TensorValue:
    """Puts `number` around `value`; `widths` as in torch, innermost dimension first."""
    value = stored(builder, value)
    literal = Literal(number=rounded(number, value.logical), dtype=compute_dtype(value.dtype))
    return _moved(builder, "pad", value, list(widths), literal, shape=shape)


def cat(
    builder: Builder, values: Sequence[Operand], dim: int, dtype: torch.dtype, shape: Shape
) -> TensorValue:
    """Joins `values` along `dim` as tensors of `dtype`."""
    pieces = [builder.held(builder.real(tensor(builder, value)), dtype) for value in values]
    return builder.emit("cat", pieces, dim, dtype=dtype, shape=shape, exact=True)
