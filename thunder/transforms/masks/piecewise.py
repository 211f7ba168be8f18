"""Functions of a tensor's index: case distinctions over linear conditions.

A causal mask is "if query - key >= 0 then True else False" at every index. Such functions are
trees; applying an operation to some of them gives another tree, in which every case that no
index can reach is left out. That makes equality of two functions decidable: their comparison
must come out as the single leaf True. Values are bools, floats, or integer expressions.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TypeAlias, final

from thunder.transforms.masks.affine import (
    LONGEST,
    Affine,
    Index,
    Level,
    Size,
    Variable,
    is_contradiction,
    variable,
)

_DEEPEST = 8
"""A function with more nested conditions than that is no mask that a kernel has a form for."""

Value: TypeAlias = Affine | bool | float


@final
@dataclass(frozen=True, slots=True)
class Leaf:
    """One value: a bool, a float, or an integer expression."""

    value: Value


@final
@dataclass(frozen=True, slots=True)
class Choice:
    """One of two functions, by whether an expression is zero or more."""

    condition: Affine
    holds: Tree
    fails: Tree


Tree: TypeAlias = Leaf | Choice


@final
@dataclass(frozen=True, slots=True)
class Space:
    """The indices that a tensor of some shape has.

    Attributes:
        shape: Its sizes.
    """

    shape: tuple[Affine, ...]
    _known: dict[tuple[Affine, ...], bool] = field(default_factory=dict, compare=False, repr=False)

    def excludes(self, *conditions: Affine) -> bool:
        """Says whether it is proven that at no index all conditions are zero or more.

        Args:
            conditions: Integer expressions.

        Example:
            >>> from thunder.transforms.masks.affine import Affine, Index, variable
            >>> space = Space((Affine(8),))
            >>> space.excludes(variable(Index(0)) - 8), space.excludes(variable(Index(0)) - 7)
            (True, False)
        """
        if conditions not in self._known:
            self._known[conditions] = is_contradiction([*conditions, *self._bounds(conditions)])
        return self._known[conditions]

    def always(self, condition: Affine) -> bool:
        """Says whether it is proven that the condition is zero or more at every index."""
        return self.excludes(-condition - 1)

    def _bounds(self, conditions: Sequence[Affine]) -> Iterator[Affine]:
        """Yields what is known about every variable that plays a part."""
        waiting = [of for condition in conditions for of, _ in condition.terms]
        seen: set[Variable] = set()
        while waiting:
            of = waiting.pop()
            if of in seen:
                continue
            seen.add(of)
            low, high = self._bounds_of(of)
            yield from (variable(of) - low, high - variable(of))
            waiting.extend(other for other, _ in high.terms)

    def _bounds_of(self, of: Variable) -> tuple[Affine, Affine]:
        match of:
            case Index(dimension):
                return Affine(0), self.shape[dimension] - 1
            case Level():
                return Affine(0), Affine(LONGEST)
            case Size(lower=lower, upper=upper):
                return Affine(lower), Affine(upper)


def combine(
    function: Callable[..., Tree | None],
    trees: Sequence[Tree],
    space: Space,
    path: tuple[Affine, ...] = (),
) -> Tree | None:
    """Applies a function at every index.

    Args:
        function: Takes one value for each tree; returns the result there, or None when it
            cannot tell.
        trees: The operands, over the same index.
        space: The indices.
        path: Conditions that hold where the result is asked for.

    Returns:
        The function of the index, without cases that no index reaches; None when `function`
        could not tell somewhere, or there are too many cases.
    """
    split = next((tree for tree in trees if isinstance(tree, Choice)), None)
    if split is None:
        result = function(*[tree.value for tree in trees if isinstance(tree, Leaf)])
        return simplify(result, space, path) if isinstance(result, Choice) else result
    condition = split.condition
    holding, failing = (*path, condition), (*path, -condition - 1)
    if space.excludes(*failing):
        return combine(function, _sides(trees, condition, True), space, path)
    if space.excludes(*holding):
        return combine(function, _sides(trees, condition, False), space, path)
    if len(path) == _DEEPEST:
        return None
    holds = combine(function, _sides(trees, condition, True), space, holding)
    fails = combine(function, _sides(trees, condition, False), space, failing)
    if holds is None or fails is None:
        return None
    return holds if holds == fails else Choice(condition, holds, fails)


def simplify(tree: Tree, space: Space, path: tuple[Affine, ...] = ()) -> Tree | None:
    """Returns the function without cases that no index reaches."""
    return combine(Leaf, [tree], space, path)


def substitute(tree: Tree, replacements: Mapping[Variable, Affine]) -> Tree:
    """Returns the function with variables replaced, all at once."""
    match tree:
        case Leaf(Affine() as value):
            return Leaf(value.substitute(replacements))
        case Leaf():
            return tree
        case Choice(condition, holds, fails):
            return Choice(
                condition.substitute(replacements),
                substitute(holds, replacements),
                substitute(fails, replacements),
            )


def conditions(tree: Tree) -> Iterator[Affine]:
    """Yields the conditions that a function distinguishes, outermost first."""
    if isinstance(tree, Choice):
        yield tree.condition
        yield from conditions(tree.holds)
        yield from conditions(tree.fails)


def leaves(tree: Tree) -> Iterator[Value]:
    """Yields the values that a function takes."""
    if isinstance(tree, Leaf):
        yield tree.value
    else:
        yield from leaves(tree.holds)
        yield from leaves(tree.fails)


def _sides(trees: Sequence[Tree], condition: Affine, holds: bool) -> list[Tree]:
    return [_side(tree, condition, holds) for tree in trees]


def _side(tree: Tree, condition: Affine, holds: bool) -> Tree:
    if isinstance(tree, Choice) and tree.condition == condition:
        return tree.holds if holds else tree.fails
    return tree
