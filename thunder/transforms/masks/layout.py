"""Rules of operations that depend on where an element is: ranges, views, indexing, cumulation.

A view is a substitution: each index of the operand becomes an expression of the result's
indices. What moves elements in another way (a flattening, a strided copy) has no rule.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from thunder.transforms.masks.affine import Affine, Index, Level, Variable, affine, variable
from thunder.transforms.masks.indexed_tensor import IndexedTensor, cast
from thunder.transforms.masks.operators import Result, Rule
from thunder.transforms.masks.piecewise import (
    Choice,
    Leaf,
    Space,
    Tree,
    combine,
    conditions,
    simplify,
    substitute,
)


def arange(
    result: Result, start: Any, end: Any = None, step: Any = 1, **options: Any
) -> Tree | None:
    """`torch.arange` of integers."""
    del options
    first = start if end is not None else 0
    if not isinstance(first, int | Affine) or not isinstance(step, int):
        return None
    return cast(affine(first) + variable(Index(0)) * step, result.dtype)


def triangle(sign: int) -> Rule:
    """Returns the rule of `tril` (sign 1) or `triu` (sign -1)."""

    def rule(result: Result, input: Any, diagonal: Any = 0) -> Tree | None:
        tree = result.broadcast(input)
        zero = cast(Affine(0), result.dtype)
        if tree is None or zero is None or not isinstance(diagonal, int | Affine):
            return None
        rank = len(result.space.shape)
        row, column = variable(Index(rank - 2)), variable(Index(rank - 1))
        condition = (row - column + diagonal) * sign
        return combine(Leaf, [Choice(condition, tree, zero)], result.space)

    return rule


def broadcasted(result: Result, input: Any, *sizes: Any, **options: Any) -> Tree | None:
    """`expand` and its relatives: the result's shape says all."""
    del sizes, options
    return result.broadcast(input)


def unsqueeze(result: Result, input: Any, dim: Any) -> Tree | None:
    """`torch.unsqueeze`."""
    rank = len(result.space.shape)
    at = _position(dim, rank)
    return None if at is None else reindexed(result, input, _all_but(at, rank))


def reshaped(result: Result, input: Any, *sizes: Any, **options: Any) -> Tree | None:
    """`view`, `reshape`, `squeeze`: only where dimensions of size 1 come or go."""
    del sizes, options
    if not isinstance(input, IndexedTensor):
        return None
    one = Affine(1)
    kept = [dim for dim, size in enumerate(input.shape) if size != one]
    target = [dim for dim, size in enumerate(result.space.shape) if size != one]
    if [input.shape[dim] for dim in kept] != [result.space.shape[dim] for dim in target]:
        return None
    where = dict(zip(kept, target, strict=True))
    return reindexed(result, input, [where.get(dim) for dim in range(len(input.shape))])


def transpose(result: Result, input: Any, dim0: Any, dim1: Any) -> Tree | None:
    """`torch.transpose`."""
    rank = len(result.space.shape)
    first, second = _position(dim0, rank), _position(dim1, rank)
    if first is None or second is None:
        return None
    order = list(range(rank))
    order[first], order[second] = second, first
    return reindexed(result, input, order)


def matrix_transpose(result: Result, input: Any) -> Tree | None:
    """`torch.t` of a matrix."""
    return transpose(result, input, 0, 1) if len(result.space.shape) == 2 else None


def permute(result: Result, input: Any, *dims: Any) -> Tree | None:
    """`torch.permute`."""
    rank = len(result.space.shape)
    given = dims[0] if len(dims) == 1 and isinstance(dims[0], tuple | list) else dims
    order = [_position(dim, rank) for dim in given]
    if sorted(at for at in order if at is not None) != list(range(rank)):
        return None
    return reindexed(result, input, [order.index(at) for at in range(rank)])


def cumsum(result: Result, input: Any, dim: Any, **options: Any) -> Tree | None:
    """`torch.cumsum` of integers that do not change along the dimension."""
    del options
    along, tree = _along(dim, result.space), result.broadcast(input)
    if (
        tree is None
        or along is None
        or any(_depends_on(condition, along) for condition in conditions(tree))
    ):
        return None

    def total(value: Any) -> Tree | None:
        number = affine(int(value)) if isinstance(value, bool) else value
        if not isinstance(number, Affine) or not number.is_constant:
            return None
        return Leaf((variable(along) + 1) * number.constant)

    return combine(total, [tree], result.space)


def diff(
    result: Result, input: Any, n: int = 1, dim: Any = -1, prepend: Any = None, append: Any = None
) -> Tree | None:
    """`torch.diff` of integers, with at most one element put in front."""
    along = _along(dim, result.space)
    if n != 1 or append is not None or along is None or not isinstance(input, IndexedTensor):
        return None
    shifted, rest = substitute(input.tree, {along: variable(along) + 1}), input.tree
    if prepend is not None:
        first = _in_front(prepend, input, along)
        if first is None:
            return None
        before = substitute(input.tree, {along: variable(along) - 1})
        shifted, rest = input.tree, Choice(variable(along) - 1, before, first)

    def subtract(after: Any, before: Any) -> Tree | None:
        both = isinstance(after, Affine) and isinstance(before, Affine)
        return Leaf(after - before) if both else None

    return combine(subtract, [shifted, rest], result.space)


def cat(result: Result, tensors: Any, dim: Any = 0) -> Tree | None:
    """`torch.cat`."""
    along = _along(dim, result.space)
    if along is None or not isinstance(tensors, tuple | list):
        return None
    start, tree = Affine(0), None
    for tensor in tensors:
        if not isinstance(tensor, IndexedTensor) or len(tensor.shape) != len(result.space.shape):
            return None
        offset = variable(along) - start
        part = substitute(tensor.tree, {along: offset})
        tree = part if tree is None else Choice(offset, part, tree)
        start += tensor.shape[along.dimension]
    if tree is None:
        return None
    return combine(lambda value: cast(value, result.dtype), [tree], result.space)


def add_batch_dim(result: Result, input: Any, dim: Any, level: int) -> Tree | None:
    """What `torch.vmap` does to its operands: one dimension becomes a level."""
    rank = len(result.space.shape) + 1
    at = _position(dim, rank)
    if at is None:
        return None
    inside: list[Any] = list(range(rank - 1))
    inside.insert(at, variable(Level(level)))
    return reindexed(result, input, inside)


def remove_batch_dim(
    result: Result, input: Any, level: int, batch_size: Any, dim: Any
) -> Tree | None:
    """What `torch.vmap` does to its results: a level becomes a dimension again."""
    del batch_size
    rank = len(result.space.shape)
    at = _position(dim, rank)
    if at is None:
        return None
    return reindexed(result, input, _all_but(at, rank), {Level(level): variable(Index(at))})


CREATED: dict[str, Rule] = {"arange": arange}
"""Rules by name of operations that make a tensor from constants."""

FRESH: dict[str, Rule] = {
    "tril": triangle(1),
    "triu": triangle(-1),
    "cumsum": cumsum,
    "diff": diff,
    "cat": cat,
    "repeat": broadcasted,
}
"""Rules by name of operations whose result has memory of its own."""

VIEWS: dict[str, Rule] = {
    "expand": broadcasted,
    "expand_as": broadcasted,
    "broadcast_to": broadcasted,
    "unsqueeze": unsqueeze,
    "squeeze": reshaped,
    "view": reshaped,
    "view_as": reshaped,
    "reshape": reshaped,
    "transpose": transpose,
    "swapaxes": transpose,
    "swapdims": transpose,
    "t": matrix_transpose,
    "permute": permute,
}
"""Rules by name of operations whose result may share memory with their operand."""

WRITTEN: tuple[str, ...] = ("tril", "triu")
"""Names of the operations that have an in-place form."""


def reindexed(
    result: Result,
    operand: Any,
    inside: Sequence[int | Affine | None],
    levels: Mapping[Variable, Affine] | None = None,
) -> Tree | None:
    """Returns the elements of a view.

    Args:
        result: The view.
        operand: What it is a view of.
        inside: For each dimension of the operand, which dimension of the result it is, or the
            position in it, or None for the only position.
        levels: What levels of `torch.vmap` become.
    """
    if not isinstance(operand, IndexedTensor) or operand.dtype is not result.dtype:
        return None
    if len(inside) != len(operand.shape):
        return None
    replacements: dict[Variable, Affine] = dict(levels or {})
    for dimension, position in enumerate(inside):
        match position:
            case Affine():
                replacements[Index(dimension)] = position
            case int():
                replacements[Index(dimension)] = variable(Index(position))
            case None:
                replacements[Index(dimension)] = Affine(0)
    return simplify(substitute(operand.tree, replacements), result.space)


def _position(dim: Any, rank: int) -> int | None:
    """Returns a dimension counted from the front, None when it is not one."""
    return dim % rank if isinstance(dim, int) and -rank <= dim < rank else None


def _along(dim: Any, space: Space) -> Index | None:
    at = _position(dim, len(space.shape))
    return None if at is None else Index(at)


def _all_but(at: int, rank: int) -> list[int]:
    return [dim for dim in range(rank) if dim != at]


def _in_front(prepend: Any, input: IndexedTensor, along: Index) -> Tree | None:
    if not isinstance(prepend, IndexedTensor) or prepend.dtype is not input.dtype:
        return None
    shape = list(input.shape)
    shape[along.dimension] = Affine(1)
    return substitute(prepend.tree, {along: Affine(0)}) if prepend.shape == tuple(shape) else None


def _depends_on(expression: Affine, on: Variable) -> bool:
    return any(of == on for of, _ in expression.terms)
