"""Lookups by index.

nvFuser reads wherever an index points. Every index is therefore brought into range first, and
what an index out of range would have picked is NaN; ATen stops the process there instead.
Tables of integers cannot show that and are refused.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import torch
from torch import fx

from thunder.executors.nvfuser import layout
from thunder.executors.nvfuser.builder import Builder, shape_of
from thunder.executors.nvfuser.definition import Number, Operand, TensorValue
from thunder.executors.nvfuser.dtypes import INTEGERS, compute_dtype
from thunder.executors.nvfuser.lowering import Kind, Lowering
from thunder.executors.nvfuser.lowerings.factories import counter
from thunder.executors.nvfuser.sizes import all_concrete, concrete

CONSTANTS = frozenset(
    f"aten.{name}.default" for name in ("full", "zeros", "full_like", "zeros_like")
)


def _in_range(builder: Builder, index: TensorValue, size: int) -> tuple[TensorValue, TensorValue]:
    """Returns the index with 0 where it is out of range, and where it is in range."""
    below, above = builder.compare("ge", index, 0), builder.compare("lt", index, size)
    good = builder.elementwise("logical_and", below, above, dtype=torch.bool)
    return builder.where(good, index, 0, dtype=index.dtype), good


def _poisoned(builder: Builder, picked: TensorValue, good: Operand) -> TensorValue:
    compute = compute_dtype(picked.dtype)
    result = builder.where(good, picked, float("nan"), dtype=compute)
    return replace(result, logical=picked.logical, exact=True)


def look_up(builder: Builder, table: Operand, index: Operand, dim: int) -> TensorValue:
    """Picks slices of `table` along `dim`; the dimensions of `index` take the place of `dim`."""
    source = layout.stored(builder, table)
    places = layout.tensor(builder, index)
    flat_shape = (_numel(places.shape),)
    flat = layout.reshape(builder, places, flat_shape, [-1])
    assert isinstance(flat, TensorValue)
    safe, good = _in_range(builder, flat, concrete(source.shape[dim]) or 0)
    before, after = source.shape[:dim], source.shape[dim + 1 :]
    picked = builder.emit(
        "index_select",
        source,
        safe,
        dim,
        dtype=source.dtype,
        shape=(*before, *flat_shape, *after),
        exact=source.exact,
    )
    spread = layout.unsqueeze(builder, good, list(range(1, len(after) + 1)))
    result = _poisoned(builder, replace(picked, logical=source.logical), spread)
    shape = (*before, *places.shape, *after)
    if len(places.shape) == 1:
        return result
    reshaped = layout.reshape(builder, result, shape, [int(size) for size in shape])
    return layout.tensor(builder, reshaped)


def _numel(shape: Sequence[Any]) -> int:
    total = 1
    for size in shape:
        total *= concrete(size) or 0
    return total


def embedding(
    builder: Builder,
    weight: Operand,
    indices: Operand,
    padding_idx: int = -1,
    scale_grad_by_freq: bool = False,
    sparse: bool = False,
) -> TensorValue:
    """Picks rows of a matrix; the options only matter to the backward."""
    return look_up(builder, weight, indices, 0)


def index_select(builder: Builder, self: Operand, dim: int, index: Operand) -> TensorValue:
    """Picks slices along a dimension."""
    return look_up(builder, self, index, dim % len(shape_of(self)))


def index_tensor(builder: Builder, self: Operand, indices: Sequence[Operand | None]) -> TensorValue:
    """Picks slices along the one dimension that has an index; negative ones count from the end."""
    ((dim, index),) = [(dim, index) for dim, index in enumerate(indices) if index is not None]
    places = layout.tensor(builder, index)
    size = concrete(shape_of(self)[dim]) or 0
    negative = builder.compare("lt", places, 0)
    wrapped = builder.binary("add", places, size, dtype=places.dtype)
    places = builder.where(negative, wrapped, places, dtype=places.dtype)
    return look_up(builder, self, places, dim)


def gather(
    builder: Builder, self: Operand, dim: int, index: Operand, sparse_grad: bool = False
) -> TensorValue:
    """Picks one element along `dim` for each element of `index`."""
    source = layout.tensor(builder, self)
    return pick(builder, source, dim % len(source.shape), layout.tensor(builder, index))


def pick(builder: Builder, source: TensorValue, dim: int, index: TensorValue) -> TensorValue:
    """Is `gather` on values; sizes must agree in the other dimensions."""
    if concrete(index.shape[dim]) == 1 and builder.recorder.is_computed(source):
        return _pick_by_sum(builder, source, dim, index)
    source = layout.stored(builder, source)
    safe, good = _in_range(builder, index, concrete(source.shape[dim]) or 0)
    picked = builder.emit(
        "take_along_axis",
        source,
        safe,
        dim,
        dtype=source.dtype,
        shape=index.shape,
        exact=source.exact,
    )
    return _poisoned(builder, replace(picked, logical=source.logical), good)


def _pick_by_sum(
    builder: Builder, source: TensorValue, dim: int, index: TensorValue
) -> TensorValue:
    """Adds up what is left when everything but the element is zero.

    nvFuser looks up in memory only; a value that it computes would be written first. A sum
    takes its place in the kernel that computes the value, as cross entropy needs it.
    """
    value = builder.held(source, compute_dtype(source.dtype))
    here = builder.compare("eq", _line(builder, source.shape, dim), index)
    alone = builder.where(here, value, 0, dtype=value.dtype)
    picked = builder.reduce("sum", alone, dim, True)
    _, good = _in_range(builder, index, concrete(source.shape[dim]) or 0)
    result = builder.where(good, picked, float("nan"), dtype=value.dtype)
    return replace(result, logical=source.logical, exact=source.exact)


def _line(builder: Builder, shape: Sequence[Any], dim: int) -> TensorValue:
    """Returns the numbers of the places along `dim`, with size 1 in the other dimensions."""
    line = counter(builder, concrete(shape[dim]) or 0)
    others = [other for other in range(len(shape)) if other != dim]
    return layout.tensor(builder, layout.unsqueeze(builder, line, others))


def scatter_number(
    builder: Builder, self: Operand, dim: int, index: Operand, value: Number
) -> TensorValue:
    """Puts a number at one place of each row of a tensor made of another number."""
    places = layout.tensor(builder, index)
    shape = shape_of(self)
    dim %= len(shape)
    here = builder.compare("eq", _line(builder, shape, dim), places)
    return builder.where(here, value, self)


def _refuse_scatter(
    result: torch.Tensor, self: torch.Tensor, dim: int, index: torch.Tensor, value: Any
) -> str | None:
    if self.ndim == 0 or not all_concrete(self.shape):
        return "it writes into a single number or a symbolic shape"
    expected = list(self.shape)
    expected[dim % self.ndim] = 1
    if list(index.shape) != expected:
        return "it writes to several places of a row, or not to every row"
    return None


def _refuse_full_target(node: fx.Node) -> str | None:
    target = node.args[0]
    if isinstance(target, fx.Node) and str(target.target) in CONSTANTS:
        return None
    return "it writes into a tensor that is not made of one number"


def _refuse_table(table: torch.Tensor, index: torch.Tensor) -> str | None:
    if not table.dtype.is_floating_point:
        return "an index out of range would go unnoticed in a table of integers"
    if index.dtype not in INTEGERS:
        return f"its index has dtype {index.dtype}"
    if not (all_concrete(table.shape) and all_concrete(index.shape)):
        return "it looks up in symbolic shapes"
    if table.ndim == 0 or index.ndim == 0:
        return "its table or its index is a single number"
    return None


def _refuse_embedding(
    result: torch.Tensor, weight: torch.Tensor, indices: torch.Tensor, *_: Any, **__: Any
) -> str | None:
    return _refuse_table(weight, indices)


def _refuse_index_select(
    result: torch.Tensor, self: torch.Tensor, dim: int, index: torch.Tensor
) -> str | None:
    return _refuse_table(self, index)


def _refuse_index(
    result: torch.Tensor, self: torch.Tensor, indices: Sequence[torch.Tensor | None]
) -> str | None:
    given = [index for index in indices if index is not None]
    if len(given) != 1:
        return "it has indices for several dimensions"
    return _refuse_table(self, given[0])


def _refuse_gather(
    result: torch.Tensor, self: torch.Tensor, dim: int, index: torch.Tensor, **_: Any
) -> str | None:
    refusal = _refuse_table(self, index)
    if refusal is not None:
        return refusal
    dim %= self.ndim
    if any(
        left != right
        for place, (left, right) in enumerate(zip(self.shape, index.shape, strict=True))
        if place != dim
    ):
        return "its index covers only a part of the other dimensions"
    return None


def _entry(lower: Callable[..., Any], refuse: Callable[..., str | None]) -> Lowering:
    return Lowering(lower=lower, kind=Kind.MOVEMENT, refuse=refuse)


LOWERINGS: dict[str, Lowering] = {
    "aten.embedding.default": _entry(embedding, _refuse_embedding),
    "aten.index_select.default": _entry(index_select, _refuse_index_select),
    "aten.index.Tensor": _entry(index_tensor, _refuse_index),
    "aten._unsafe_index.Tensor": _entry(index_tensor, _refuse_index),
    "aten.gather.default": _entry(gather, _refuse_gather),
    "aten.scatter.value": Lowering(
        lower=scatter_number,
        kind=Kind.COMPUTE,
        refuse=_refuse_scatter,
        refuse_node=_refuse_full_target,
    ),
}
