"""A tensor that is known as a function of the index, and the values that such a one can hold.

Only what is exact is represented: an integer that could wrap around, a rounded float, or a
tensor that is data give no `IndexedTensor`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import final

import torch

from thunder.transforms.masks.affine import Affine, Index, Variable, variable
from thunder.transforms.masks.piecewise import Choice, Leaf, Space, Tree, Value, leaves, substitute

FLOATS = frozenset({torch.float16, torch.bfloat16, torch.float32, torch.float64})
INTEGERS = frozenset({torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64})

_LARGEST_EXACT = 2**53
"""Integers up to here are floats of 64 bits too."""


@final
@dataclass(frozen=True, slots=True)
class IndexedTensor:
    """A tensor whose elements are a known function of their index.

    Attributes:
        space: Its shape.
        dtype: Its dtype: bool, an integer or a float.
        tree: The function. Leaves are bools, integer expressions or floats, as the dtype says.
    """

    space: Space
    dtype: torch.dtype
    tree: Tree

    @property
    def shape(self) -> tuple[Affine, ...]:
        """The sizes of its dimensions."""
        return self.space.shape


def indexed_tensor(space: Space, dtype: torch.dtype, tree: Tree) -> IndexedTensor | None:
    """Returns the tensor, or None when its dtype cannot hold these values exactly.

    Args:
        space: Its shape.
        dtype: Its dtype.
        tree: Its values.
    """
    if all(_fits(value, dtype, space) for value in leaves(tree)):
        return IndexedTensor(space, dtype, tree)
    return None


def broadcast(tensor: IndexedTensor, space: Space) -> Tree | None:
    """Returns the tensor's values over the indices of a shape that it is broadcast to.

    Args:
        tensor: The tensor.
        space: The larger shape.

    Returns:
        The function of the larger tensor's index; None when the shapes are not proven to fit.
    """
    missing = len(space.shape) - len(tensor.shape)
    if missing < 0:
        return None
    replacements: dict[Variable, Affine] = {}
    for dimension, size in enumerate(tensor.shape):
        if size == space.shape[dimension + missing]:
            replacements[Index(dimension)] = variable(Index(dimension + missing))
        elif size == Affine(1):
            replacements[Index(dimension)] = Affine(0)
        else:
            return None
    return substitute(tensor.tree, replacements)


def cast(value: Value, dtype: torch.dtype) -> Tree | None:
    """Returns a value after conversion to a dtype.

    Args:
        value: A bool, float or integer expression.
        dtype: What it becomes.

    Returns:
        The value or values that it becomes (an expression as a bool is a case distinction);
        None when that is not known exactly.
    """
    if isinstance(value, Affine) and value.is_constant:
        constant: bool | int | float = value.constant
    elif isinstance(value, Affine):
        return _cast_expression(value, dtype)
    else:
        constant = value
    if dtype is torch.bool:
        return Leaf(bool(constant))
    if not isinstance(constant, float) and abs(constant) > _LARGEST_EXACT:
        return None
    if dtype in FLOATS:
        return Leaf(float(torch.tensor(constant, dtype=torch.float64).to(dtype).item()))
    if dtype in INTEGERS and abs(constant) <= _LARGEST_EXACT and constant == int(constant):
        return Leaf(Affine(int(constant)))
    return None


def _cast_expression(value: Affine, dtype: torch.dtype) -> Tree | None:
    if dtype is torch.bool:
        negative = Choice(-value - 1, Leaf(True), Leaf(False))
        return Choice(value - 1, Leaf(True), negative)
    return Leaf(value) if dtype in INTEGERS else None


def _fits(value: Value, dtype: torch.dtype, space: Space) -> bool:
    if dtype is torch.bool:
        return isinstance(value, bool)
    if dtype in FLOATS:
        return isinstance(value, float)
    if dtype not in INTEGERS or not isinstance(value, Affine):
        return False
    if not value.is_constant and dtype not in (torch.int32, torch.int64):
        return False  # torch wraps Python numbers around before it compares with narrower ones
    limits = torch.iinfo(dtype)
    return space.always(value - limits.min) and space.always(-value + limits.max)
