"""The rule of `tensor[...]`: integers, slices, None, an ellipsis, and tensors of indices."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, final

from thunder.transforms.masks.affine import Affine, Index, Variable, affine, variable
from thunder.transforms.masks.indexed_tensor import IndexedTensor, broadcast
from thunder.transforms.masks.layout import reindexed
from thunder.transforms.masks.operators import Result
from thunder.transforms.masks.piecewise import Leaf, Space, Tree


def getitem(result: Result, input: Any, index: Any) -> Tree | None:
    """`input[index]`.

    Args:
        result: The result.
        input: The tensor that is indexed.
        index: What is between the brackets.
    """
    if not isinstance(input, IndexedTensor):
        return None
    items = _without_ellipsis(index if isinstance(index, tuple) else (index,), len(input.shape))
    if items is None or any(isinstance(item, bool) for item in items):
        return None
    walk = _Walk(result=result, input=input, block=_block(items, result))
    for item in items:
        if not walk.step(item):
            return None
    return reindexed(result, input, walk.inside) if walk.is_complete else None


@final
@dataclass(frozen=True, kw_only=True, slots=True)
class _Block:
    """Where the dimensions lie that tensors of indices bring.

    Attributes:
        at_front: Whether they come first in the result rather than where the tensors stand, which
            they do when something lies between the tensors.
        rank: How many they are.
    """

    at_front: bool = False
    rank: int = 0


@final
@dataclass(kw_only=True, slots=True)
class _Walk:
    """Goes through the items of an index, and counts dimensions on both sides."""

    result: Result
    input: IndexedTensor
    block: _Block
    inside: list[Affine | int | None] = field(default_factory=list)
    outside: int = 0
    block_start: int | None = None

    def __post_init__(self) -> None:
        if self.block.at_front:
            self.block_start, self.outside = 0, self.block.rank

    @property
    def is_complete(self) -> bool:
        """Whether all dimensions of both sides have been met."""
        return self.outside == len(self.result.space.shape)

    def step(self, item: Any) -> bool:
        """Takes one item; returns whether it is understood."""
        match item:
            case None:
                self.outside += 1
                return True
            case slice():
                position = self._sliced(item)
                self.outside += 1
            case int() | Affine():
                position = self._at(affine(item))
            case IndexedTensor():
                position = self._gathered(item)
            case _:
                return False
        self.inside.append(position)
        return position is not None

    @property
    def _size(self) -> Affine:
        return self.input.shape[len(self.inside)]

    def _at(self, position: Affine) -> Affine | None:
        space = self.result.space
        if space.always(position):
            return position
        return position + self._size if space.always(-position - 1) else None

    def _sliced(self, item: slice) -> Affine | None:
        first = 0 if item.start is None else item.start
        if item.step not in (None, 1) or not isinstance(first, int | Affine):
            return None
        start = self._at(affine(first))
        if start is None or not self.result.space.always(start):
            return None
        return start + variable(Index(self.outside))

    def _gathered(self, item: IndexedTensor) -> Affine | None:
        if self.block_start is None:
            self.block_start, self.outside = self.outside, self.outside + self.block.rank
        rank = self.block.rank
        shape = self.result.space.shape[self.block_start : self.block_start + rank]
        tree = broadcast(item, Space(shape))
        if not isinstance(tree, Leaf) or not isinstance(tree.value, Affine):
            return None
        moved: dict[Variable, Affine] = {
            Index(of): variable(Index(of + self.block_start)) for of in range(rank)
        }
        position = tree.value.substitute(moved)
        space = self.result.space
        inside = space.always(position) and space.always(self._size - 1 - position)
        return position if inside else None


def _without_ellipsis(index: tuple[Any, ...], rank: int) -> list[Any] | None:
    """Writes out an ellipsis, and the dimensions that the index leaves out at its end."""
    used = sum(item is not None and item is not Ellipsis for item in index)
    if used > rank:
        return None
    filling: list[Any] = [slice(None)] * (rank - used)
    for at, item in enumerate(index):
        if item is Ellipsis:
            return [*index[:at], *filling, *index[at + 1 :]]
    return [*index, *filling]


def _block(items: list[Any], result: Result) -> _Block:
    kept = [item for item in items if not isinstance(item, int | Affine)]  # torch selects first
    tensors = [at for at, item in enumerate(kept) if isinstance(item, IndexedTensor)]
    if not tensors:
        return _Block()
    removed = len(kept) - len(tensors)
    together = tensors[-1] - tensors[0] + 1 == len(tensors)
    return _Block(at_front=not together, rank=len(result.space.shape) - removed)
