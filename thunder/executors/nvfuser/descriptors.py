"""Strides in nvFuser's terms: contiguity and stride order.

Source: NVIDIA/Fuser `compute_tensor_descriptor`, whose results the GPU tests compare with these.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True, slots=True)
class Descriptor:
    """The layout of a tensor.

    Attributes:
        contiguity: One entry a dimension in memory order, from the outermost: whether its stride
            is that of a dense tensor, or None for a dimension of size 1 or stride 0.
        stride_order: For each dimension its rank in memory, 0 being the innermost.
    """

    contiguity: tuple[bool | None, ...]
    stride_order: tuple[int, ...]


def describe_layout(sizes: Sequence[int], strides: Sequence[int]) -> Descriptor:
    """Describes a layout.

    Args:
        sizes: Elements in each dimension.
        strides: Distance in elements, not negative.

    Example:
        >>> describe_layout((2, 3, 4, 5), (60, 1, 15, 3))  # channels last
        Descriptor(contiguity=(True, True, True, True), stride_order=(3, 0, 2, 1))
        >>> describe_layout((4, 1, 6), (12, 6, 1)).contiguity  # every other row
        (False, None, True)
    """
    order = memory_order(strides)
    contiguity: list[bool | None] = []
    expected = 1
    for dim in reversed(order):
        if sizes[dim] == 1 or strides[dim] == 0:
            contiguity.append(None)
            continue
        contiguity.append(strides[dim] == expected)
        expected = strides[dim] * sizes[dim]
    ranks = {dim: len(order) - 1 - place for place, dim in enumerate(order)}
    return Descriptor(
        contiguity=tuple(reversed(contiguity)),
        stride_order=tuple(ranks[dim] for dim in range(len(order))),
    )


def memory_order(strides: Sequence[int]) -> list[int]:
    """Returns the dimensions from outermost to innermost; those of stride 0 keep their place.

    Example:
        >>> memory_order((1, 8, 4)), memory_order((6, 0, 1))
        ([1, 2, 0], [0, 1, 2])
    """
    moving = iter(
        sorted((dim for dim, stride in enumerate(strides) if stride), key=lambda d: -strides[d])
    )
    return [next(moving) if stride else dim for dim, stride in enumerate(strides)]


def is_dense(sizes: Sequence[int], strides: Sequence[int]) -> bool:
    """Whether the elements fill memory without gaps or overlaps, in some order of dimensions.

    Example:
        >>> is_dense((4, 5), (1, 4)), is_dense((4, 5), (10, 1)), is_dense((4, 5), (0, 1))
        (True, False, False)
    """
    expected = 1
    for dim in sorted(range(len(sizes)), key=lambda d: (strides[d], sizes[d])):
        if sizes[dim] == 1:
            continue
        if strides[dim] != expected:
            return False
        expected *= sizes[dim]
    return True
