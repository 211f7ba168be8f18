"""Views and copies: operators that move data and compute nothing."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch

from thunder.executors.nvfuser import layout
from thunder.executors.nvfuser.builder import Builder, as_sizes, shape_of
from thunder.executors.nvfuser.definition import Constant, Operand, TensorValue
from thunder.executors.nvfuser.lowering import Kind, Lowering
from thunder.executors.nvfuser.sizes import (
    all_concrete,
    concrete,
    concrete_shape,
    normalized,
)

Moved = TensorValue | Constant


def _shape(builder: Builder) -> tuple[Any, ...]:
    return concrete_shape(builder.result.shape)


def view(builder: Builder, self: Operand, size: Sequence[Any]) -> Moved:
    """Gives the same elements another shape."""
    return layout.reshape(builder, self, _shape(builder), as_sizes(size))


def permute(builder: Builder, self: Operand, dims: Sequence[int]) -> Moved:
    """Reorders the dimensions."""
    return layout.permute(builder, self, dims)


def transpose(builder: Builder, self: Operand, dim0: int, dim1: int) -> Moved:
    """Swaps two dimensions."""
    dims = list(range(len(shape_of(self))))
    if dims:
        dims[dim0], dims[dim1] = dims[dim1], dims[dim0]
    return layout.permute(builder, self, dims)


def t(builder: Builder, self: Operand) -> Moved:
    """Transposes a matrix; leaves a vector as it is."""
    return layout.permute(builder, self, list(reversed(range(len(shape_of(self))))))


def unsqueeze(builder: Builder, self: Operand, dim: int) -> Moved:
    """Inserts a dimension of size 1."""
    return layout.unsqueeze(builder, self, [dim % (len(shape_of(self)) + 1)])


def squeeze(builder: Builder, self: Operand, dim: int | Sequence[int] | None = None) -> Moved:
    """Removes dimensions of size 1."""
    return layout.squeeze(builder, self, normalized(dim, len(shape_of(self))))


def squeeze_dims(builder: Builder, self: Operand, dim: Sequence[int]) -> Moved:
    """Removes the listed dimensions of size 1."""
    return layout.squeeze(builder, self, normalized(dim, len(shape_of(self))) if dim else [])


def expand(builder: Builder, self: Operand, size: Sequence[Any], implicit: bool = False) -> Moved:
    """Repeats dimensions of size 1 without storing them again."""
    return layout.expand(builder, self, _shape(builder), as_sizes(size))


def broadcast_in_dim(
    builder: Builder, a: Operand, shape: Sequence[Any], broadcast_dimensions: Sequence[int]
) -> Moved:
    """Places the dimensions of `a` at `broadcast_dimensions` of `shape` and repeats the rest."""
    new = [dim for dim in range(len(shape)) if dim not in broadcast_dimensions]
    return layout.expand(
        builder, layout.unsqueeze(builder, a, new), _shape(builder), as_sizes(shape)
    )


def slice_tensor(
    builder: Builder,
    self: Operand,
    dim: int = 0,
    start: int | None = None,
    end: int | None = None,
    step: int = 1,
) -> Moved:
    """Takes a range of one dimension."""
    shape = shape_of(self)
    dim %= len(shape)
    first, last = _range(concrete(shape[dim]) or 0, start, end)
    return layout.slice_one(builder, self, dim, first, last)


def _range(size: int, start: int | None, end: int | None) -> tuple[int, int]:
    first, last, _ = slice(start, end).indices(size)
    return first, max(first, last)


def _refuse_slice(
    result: torch.Tensor,
    self: torch.Tensor,
    dim: int = 0,
    start: Any = None,
    end: Any = None,
    step: Any = 1,
) -> str | None:
    if step != 1:
        return "it takes a slice with a step"
    if not all(bound is None or isinstance(bound, int) for bound in (start, end)):
        return "it takes a slice with symbolic bounds"
    if not all_concrete(self.shape):
        return "it takes a slice of a symbolic shape"
    return layout.leaves_one(self.shape, result.shape)


def select(builder: Builder, self: Operand, dim: int, index: int) -> Moved:
    """Takes one index of a dimension and removes the dimension."""
    shape = shape_of(self)
    dim %= len(shape)
    index %= concrete(shape[dim]) or 1
    piece = layout.slice_one(builder, self, dim, index, index + 1)
    return layout.squeeze(builder, piece, [dim])


def _refuse_select(result: torch.Tensor, self: torch.Tensor, dim: int, index: Any) -> str | None:
    if not isinstance(index, int):
        return "its index is symbolic"
    return None if all_concrete(self.shape) else "it selects from a symbolic shape"


def split(builder: Builder, self: Operand, split_size: Any, dim: int = 0) -> tuple[Moved, ...]:
    """Cuts one dimension into pieces."""
    dim %= len(shape_of(self))
    pieces: list[Moved] = []
    start = 0
    for fake in builder.result:
        end = start + int(fake.shape[dim])
        pieces.append(layout.slice_one(builder, self, dim, start, end))
        start = end
    return tuple(pieces)


def unbind(builder: Builder, self: Operand, dim: int = 0) -> tuple[Moved, ...]:
    """Takes every index of one dimension."""
    return tuple(select(builder, self, dim, index) for index in range(len(builder.result)))


def _refuse_symbolic(result: Any, self: torch.Tensor, *_: Any, **__: Any) -> str | None:
    return None if all_concrete(self.shape) else "it cuts a symbolic shape"


def _refuse_split(result: Any, self: torch.Tensor, *_: Any, **__: Any) -> str | None:
    if not all_concrete(self.shape):
        return "it cuts a symbolic shape"
    reasons = (layout.leaves_one(self.shape, piece.shape) for piece in result)
    return next(filter(None, reasons), None)


def same(builder: Builder, self: Operand, **_: Any) -> Operand:
    """Passes the value on; an output that is an input's value gets a buffer at the end."""
    return self


def as_strided(
    builder: Builder, self: Operand, size: Sequence[Any], stride: Sequence[Any], *_: Any
) -> Moved:
    """Gives a dense tensor another shape."""
    return layout.reshape(builder, self, _shape(builder), as_sizes(size))


def _refuse_as_strided(
    result: torch.Tensor,
    self: torch.Tensor,
    size: Sequence[Any],
    stride: Sequence[Any],
    storage_offset: Any = None,
) -> str | None:
    if not (all_concrete(self.shape) and all_concrete(size) and all_concrete(stride)):
        return "it has symbolic sizes or strides"
    whole = self.is_contiguous() and result.is_contiguous() and self.numel() == result.numel()
    if whole and storage_offset in (None, 0) and self.storage_offset() == 0:
        return None
    return "as_strided is translated where it only changes the shape of a dense tensor"


def repeat(builder: Builder, self: Operand, repeats: Sequence[int]) -> Moved:
    """Tiles a tensor: every dimension is broadcast beside itself and merged."""
    shape = shape_of(self)
    lead = len(repeats) - len(shape)
    padded = (*([1] * lead), *(concrete(size) or 0 for size in shape))
    value = layout.unsqueeze(builder, self, list(range(lead)))
    value = layout.unsqueeze(builder, value, [2 * dim for dim in range(len(padded))])
    pairs = [number for pair in zip(repeats, padded, strict=True) for number in pair]
    value = layout.expand(builder, value, tuple(pairs), pairs)
    merged = [count * size for count, size in zip(repeats, padded, strict=True)]
    return layout.reshape(builder, value, tuple(merged), merged)


def _refuse_repeat(result: torch.Tensor, self: torch.Tensor, repeats: Sequence[Any]) -> str | None:
    concrete_ = all_concrete(self.shape) and all(isinstance(count, int) for count in repeats)
    return None if concrete_ else "it repeats a symbolic shape"


def _entry(
    lower: Callable[..., Any],
    kind: Kind = Kind.VIEW,
    refuse: Callable[..., str | None] = lambda *_, **__: None,
) -> Lowering:
    return Lowering(lower=lower, kind=kind, refuse=refuse)


LOWERINGS: dict[str, Lowering] = {
    "aten.view.default": _entry(view),
    "aten._unsafe_view.default": _entry(view),
    "aten.reshape.default": _entry(view, Kind.COPY),
    "aten.permute.default": _entry(permute),
    "aten.transpose.int": _entry(transpose),
    "aten.t.default": _entry(t),
    "aten.unsqueeze.default": _entry(unsqueeze),
    "aten.squeeze.default": _entry(squeeze),
    "aten.squeeze.dim": _entry(squeeze),
    "aten.squeeze.dims": _entry(squeeze_dims),
    "aten.expand.default": _entry(expand),
    "prims.broadcast_in_dim.default": _entry(broadcast_in_dim),
    "aten.slice.Tensor": _entry(slice_tensor, refuse=_refuse_slice),
    "aten.select.int": _entry(select, refuse=_refuse_select),
    "aten.split.Tensor": _entry(split, refuse=_refuse_split),
    "aten.split_with_sizes.default": _entry(split, refuse=_refuse_split),
    "aten.unbind.int": _entry(unbind, refuse=_refuse_symbolic),
    "aten.as_strided.default": _entry(as_strided, refuse=_refuse_as_strided),
    "aten.alias.default": _entry(same),
    "aten.detach.default": _entry(same),
    "aten.clone.default": _entry(same, Kind.COPY),
    "aten.lift_fresh_copy.default": _entry(same, Kind.COPY),
    "aten.repeat.default": _entry(repeat, Kind.MOVEMENT, _refuse_repeat),
}
