"""Joining and padding tensors. nvFuser reads what these join from memory."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch

from thunder.executors.nvfuser import layout
from thunder.executors.nvfuser.builder import Builder, shape_of
from thunder.executors.nvfuser.definition import Constant, Number, Operand, TensorValue
from thunder.executors.nvfuser.lowering import Kind, Lowering
from thunder.executors.nvfuser.sizes import all_concrete, concrete, concrete_shape


def cat(builder: Builder, tensors: Sequence[Operand], dim: int = 0) -> TensorValue:
    """Joins tensors along a dimension that exists."""
    result = builder.result
    shape = concrete_shape(result.shape)
    if len(tensors) == 1:
        return builder.held(tensors[0], result.dtype)
    return layout.cat(builder, tensors, dim % len(shape), result.dtype, shape)


def _refuse_cat(result: torch.Tensor, tensors: Sequence[torch.Tensor], dim: int = 0) -> str | None:
    return _refuse_pieces(result, tensors)


def _refuse_pieces(result: torch.Tensor, tensors: Sequence[torch.Tensor]) -> str | None:
    if not all_concrete(result.shape):
        return "it joins symbolic shapes"
    if any(piece.ndim != result.ndim or piece.numel() == 0 for piece in tensors):
        return "it joins an empty tensor"
    return None


def stack(builder: Builder, tensors: Sequence[Operand], dim: int = 0) -> TensorValue:
    """Joins tensors along a new dimension."""
    dim %= len(builder.result.shape)
    return cat(builder, [layout.unsqueeze(builder, piece, [dim]) for piece in tensors], dim)


def _refuse_stack(
    result: torch.Tensor, tensors: Sequence[torch.Tensor], dim: int = 0
) -> str | None:
    return _refuse_pieces(result, [piece.unsqueeze(0) for piece in tensors])


def constant_pad(
    builder: Builder, self: Operand, pad: Sequence[int], value: Number = 0
) -> TensorValue:
    """Puts a number around a tensor; negative widths cut."""
    kept: Operand = self
    for place, (before, after) in enumerate(zip(pad[::2], pad[1::2], strict=True)):
        if before < 0 or after < 0:
            dim = len(shape_of(self)) - 1 - place
            end = (concrete(shape_of(kept)[dim]) or 0) + min(after, 0)
            kept = layout.slice_one(builder, kept, dim, -min(before, 0), end)
    widths = [max(width, 0) for width in pad]
    if not any(widths):
        return layout.tensor(builder, kept)
    return layout.pad(builder, kept, widths, value, concrete_shape(builder.result.shape))


def _refuse_pad(
    result: torch.Tensor, self: torch.Tensor, pad: Sequence[Any], value: Any = 0
) -> str | None:
    if not all_concrete(self.shape) or not all(isinstance(width, int) for width in pad):
        return "it pads a symbolic shape"
    kept = list(self.shape)
    for place, (before, after) in enumerate(zip(pad[::2], pad[1::2], strict=True)):
        kept[-1 - place] += min(before, 0) + min(after, 0)
    return layout.leaves_one(self.shape, kept)


def slice_scatter(
    builder: Builder,
    self: Operand,
    src: Operand,
    dim: int = 0,
    start: int | None = None,
    end: int | None = None,
    step: int = 1,
) -> TensorValue:
    """Replaces a range of one dimension; where the rest is one number, by padding."""
    shape = concrete_shape(builder.result.shape)
    dim %= len(shape)
    size = concrete(shape[dim]) or 0
    first, last, _ = slice(start, end).indices(size)
    if isinstance(self, Constant):
        widths = [0] * (2 * (len(shape) - 1 - dim)) + [first, size - last]
        piece = builder.held(src, builder.result.dtype)
        return layout.pad(builder, piece, widths, self.number, shape)
    pieces: list[Operand] = [src]
    if first > 0:
        pieces.insert(0, layout.slice_one(builder, self, dim, 0, first))
    if last < size:
        pieces.append(layout.slice_one(builder, self, dim, last, size))
    return cat(builder, pieces, dim)


def _refuse_slice_scatter(
    result: torch.Tensor,
    self: torch.Tensor,
    src: torch.Tensor,
    dim: int = 0,
    start: Any = None,
    end: Any = None,
    step: Any = 1,
) -> str | None:
    if step != 1:
        return "it writes a slice with a step"
    if not all_concrete(self.shape):
        return "it writes into a symbolic shape"
    if not all(bound is None or isinstance(bound, int) for bound in (start, end)):
        return "it writes a slice with symbolic bounds"
    return None


def select_scatter(
    builder: Builder, self: Operand, src: Operand, dim: int, index: int
) -> TensorValue:
    """Replaces one index of a dimension."""
    shape = shape_of(self)
    dim %= len(shape)
    index %= concrete(shape[dim]) or 1
    return slice_scatter(
        builder, self, layout.unsqueeze(builder, src, [dim]), dim, index, index + 1
    )


def _refuse_select_scatter(
    result: torch.Tensor, self: torch.Tensor, src: torch.Tensor, dim: int, index: Any
) -> str | None:
    return _refuse_slice_scatter(result, self, src, dim, index, index)


def _entry(lower: Callable[..., Any], refuse: Callable[..., str | None]) -> Lowering:
    return Lowering(lower=lower, kind=Kind.MOVEMENT, refuse=refuse)


LOWERINGS: dict[str, Lowering] = {
    "aten.cat.default": _entry(cat, _refuse_cat),
    "aten.stack.default": _entry(stack, _refuse_stack),
    "aten.constant_pad_nd.default": _entry(constant_pad, _refuse_pad),
    "aten.slice_scatter.default": _entry(slice_scatter, _refuse_slice_scatter),
    "aten.select_scatter.default": _entry(select_scatter, _refuse_select_scatter),
}
