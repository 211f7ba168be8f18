"""Which dimensions of a value nvFuser only broadcasts, without elements of their own.

Such a dimension comes out of the fusion with stride 0, and merging it with another one in a
reshape gives wrong values in nvFuser 0.2.36. The builder asks here, and makes it real in time.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from thunder.executors.nvfuser.definition import TensorValue
from thunder.executors.nvfuser.sizes import Shape, is_one

_SAME = frozenset({"cast", "cumsum", "set", "slice", "stride_order"})
_REDUCTIONS = frozenset({"max", "min", "prod", "sum", "var_mean"})
_MAKERS = frozenset({"cat", "full", "iota", "matmul", "pad", "reshape"})


def expanded_dims(operator: str, arguments: Sequence[Any], shape: Shape) -> frozenset[int]:
    """Returns the expanded dimensions of a call's result.

    Args:
        operator: nvFuser's name for it.
        arguments: Its arguments.
        shape: The result's sizes.
    """
    if operator in _MAKERS:
        return frozenset()
    value = arguments[0]
    if operator in _SAME:
        return value.expanded
    if operator in _REDUCTIONS:
        return _reduced(value, arguments[1], len(shape) == len(value.shape))
    match operator:
        case "broadcast_in_dim":
            return _broadcast(value, arguments[2], shape)
        case "broadcast":
            kept = [dim for dim, inserted in enumerate(arguments[1]) if not inserted]
            return frozenset(kept[dim] for dim in value.expanded)
        case "permute":
            return frozenset(dim for dim, old in enumerate(arguments[1]) if old in value.expanded)
        case "squeeze":
            return _reduced(value, arguments[1], keepdim=False)
    return _elementwise([a for a in arguments if isinstance(a, TensorValue)], shape)


def _reduced(value: TensorValue, dims: Sequence[int], keepdim: bool) -> frozenset[int]:
    kept = [dim for dim in range(len(value.shape)) if dim not in dims]
    if keepdim:
        return frozenset(dim for dim in kept if dim in value.expanded)
    return frozenset(place for place, dim in enumerate(kept) if dim in value.expanded)


def _broadcast(value: TensorValue, dims: Sequence[int], shape: Shape) -> frozenset[int]:
    real = {
        dim
        for old, dim in enumerate(dims)
        if not is_one(value.shape[old]) and old not in value.expanded
    }
    return frozenset(dim for dim, size in enumerate(shape) if dim not in real and not is_one(size))


def _elementwise(tensors: Sequence[TensorValue], shape: Shape) -> frozenset[int]:
    real: set[int] = set()
    for value in tensors:
        lead = len(shape) - len(value.shape)
        real |= {
            lead + dim
            for dim, size in enumerate(value.shape)
            if not is_one(size) and dim not in value.expanded
        }
    return frozenset(dim for dim, size in enumerate(shape) if dim not in real and not is_one(size))
