"""Questions about sizes that may be symbolic, answered without adding guards.

Asking a `SymInt` whether it equals a number specialises the compiled function to the answer. The
executor must not do that, so it only uses what is known already.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import TypeAlias

import torch
from torch.fx.experimental.symbolic_shapes import statically_known_true

Size: TypeAlias = int | torch.SymInt
Shape: TypeAlias = tuple[Size, ...]


def concrete(size: Size) -> int | None:
    """Returns a size as a number, or None when it is symbolic."""
    if isinstance(size, int):
        return size
    return size.node.maybe_as_int()


def all_concrete(sizes: Iterable[Size]) -> bool:
    """Whether no size is symbolic."""
    return all(concrete(size) is not None for size in sizes)


def concrete_shape(shape: Iterable[Size]) -> Shape:
    """Returns the shape with numbers in place of symbolic sizes that are known."""
    numbers = [(size, concrete(size)) for size in shape]
    return tuple(size if number is None else number for size, number in numbers)


def is_one(size: Size) -> bool:
    """Whether a size is known to be 1. Symbolic sizes are taken for larger."""
    return concrete(size) == 1


def known_equal(left: Size, right: Size) -> bool:
    """Whether two sizes are known to be equal."""
    if isinstance(left, int) and isinstance(right, int):
        return left == right
    return statically_known_true(left == right)


def same_shape(left: Sequence[Size], right: Sequence[Size]) -> bool:
    """Whether two shapes are known to be equal."""
    return len(left) == len(right) and all(map(known_equal, left, right))


def broadcast(*shapes: Sequence[Size]) -> Shape:
    """Returns the shape that the shapes broadcast to, which the caller knows to exist.

    Example:
        >>> broadcast((4, 1), (8,), ())
        (4, 8)
    """
    rank = max(map(len, shapes))
    padded = [(1,) * (rank - len(shape)) + tuple(shape) for shape in shapes]
    return tuple(
        next((size for size in sizes if not is_one(size)), 1) for sizes in zip(*padded, strict=True)
    )


def count(shape: Sequence[Size], dims: Iterable[int]) -> int | None:
    """Returns how many elements the dimensions `dims` have, or None when that is symbolic."""
    sizes = [concrete(shape[dim]) for dim in dims]
    numbers = [size for size in sizes if size is not None]
    return math.prod(numbers) if len(numbers) == len(sizes) else None


def normalized(dims: int | Sequence[int] | None, rank: int) -> list[int]:
    """Returns dimensions counted from the front, in order; all of them for None or an empty list.

    Example:
        >>> normalized([-1, 0], 3), normalized(None, 2), normalized(-1, 0)
        ([0, 2], [0, 1], [])
    """
    if dims is None or (isinstance(dims, list | tuple) and not dims):
        return list(range(rank))
    listed = [dims] if isinstance(dims, int) else dims
    return sorted({dim % rank for dim in listed}) if rank else []


def hints(sizes: Iterable[Size]) -> tuple[int, ...] | None:
    """Returns the sizes that the graph was traced with, or None where one is not known."""
    numbers: list[int] = []
    for size in sizes:
        if isinstance(size, int):
            numbers.append(size)
        elif size.node.has_hint():
            numbers.append(int(size.node.hint))
        else:
            return None
    return tuple(numbers)
