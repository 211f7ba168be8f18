"""Picking and placing one element a row, without reading memory by an index.

nvFuser's look-ups (`index_select`, `take_along_axis`) check no index, can only read what lies in
memory already, and with a checked index nvFuser 0.2.36 fails to order the kernel's expressions.
So one element of a row is picked as the sum of the row with everything else set to zero. That
stays in the kernel which computes the row, as the loss over a vocabulary needs it.
"""

from __future__ import annotations

from collections.abc import Sequence
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


def gather(
    builder: Builder, self: Operand, dim: int, index: Operand, sparse_grad: bool = False
) -> TensorValue:
    """Picks the element that `index` says of every row along `dim`."""
    source = layout.tensor(builder, self)
    return pick(builder, source, dim % len(source.shape), layout.tensor(builder, index))


def pick(builder: Builder, source: TensorValue, dim: int, index: TensorValue) -> TensorValue:
    """Is `gather` on values, for an index of size 1 along `dim`.

    An index out of range, at which ATen stops the process, gives NaN.
    """
    value = builder.held(source, compute_dtype(source.dtype))
    size = concrete(source.shape[dim]) or 0
    here = builder.compare("eq", _line(builder, source.shape, dim), index)
    alone = builder.where(here, value, 0, dtype=value.dtype)
    picked = builder.reduce("sum", alone, dim, True)
    not_below, not_above = builder.compare("ge", index, 0), builder.compare("lt", index, size)
    good = builder.elementwise("logical_and", not_below, not_above, dtype=torch.bool)
    result = builder.where(good, picked, float("nan"), dtype=value.dtype)
    return replace(result, logical=source.logical, exact=source.exact)


def scatter_number(
    builder: Builder, self: Operand, dim: int, index: Operand, value: Number
) -> TensorValue:
    """Puts a number at one place of each row of a tensor made of another number."""
    places = layout.tensor(builder, index)
    shape = shape_of(self)
    here = builder.compare("eq", _line(builder, shape, dim % len(shape)), places)
    return builder.where(here, value, self)


def _line(builder: Builder, shape: Sequence[Any], dim: int) -> TensorValue:
    """Returns the numbers of the places along `dim`, with size 1 in the other dimensions."""
    line = counter(builder, concrete(shape[dim]) or 0)
    others = [other for other in range(len(shape)) if other != dim]
    return layout.tensor(builder, layout.unsqueeze(builder, line, others))


def _refuse_gather(
    result: torch.Tensor, self: torch.Tensor, dim: int, index: torch.Tensor, **_: Any
) -> str | None:
    if not self.dtype.is_floating_point:
        return "an index out of range would go unnoticed in a table of integers"
    return _refuse_rows(self, dim, index)


def _refuse_scatter(
    result: torch.Tensor, self: torch.Tensor, dim: int, index: torch.Tensor, value: Any
) -> str | None:
    return _refuse_rows(self, dim, index)


def _refuse_rows(table: torch.Tensor, dim: int, index: torch.Tensor) -> str | None:
    if index.dtype not in INTEGERS:
        return f"its index has dtype {index.dtype}"
    if table.ndim == 0 or not all_concrete((*table.shape, *index.shape)):
        return "it indexes a single number or a symbolic shape"
    expected = list(table.shape)
    expected[dim % table.ndim] = 1
    if list(index.shape) != expected:
        return "it takes several elements of a row, or not one of every row"
    return None


def _refuse_other_targets(node: fx.Node) -> str | None:
    target = node.args[0]
    if isinstance(target, fx.Node) and str(target.target) in CONSTANTS:
        return None
    return "it writes into a tensor that is not made of one number"


LOWERINGS: dict[str, Lowering] = {
    # Alone it would read whole rows for one element each: worth it only beside other work.
    "aten.gather.default": Lowering(lower=gather, kind=Kind.COMPUTE, refuse=_refuse_gather),
    "aten.scatter.value": Lowering(
        lower=scatter_number,
        kind=Kind.COMPUTE,
        refuse=_refuse_scatter,
        refuse_node=_refuse_other_targets,
    ),
}
