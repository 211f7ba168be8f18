"""Linear expressions, and contradictions: checked against trying every integer."""

from __future__ import annotations

import itertools

from hypothesis import given
from hypothesis import strategies as st

from thunder.transforms.masks.affine import (
    Affine,
    Index,
    Size,
    affine,
    is_contradiction,
    linear,
    variable,
)

X, Y, Z = (Index(dimension) for dimension in range(3))
BOX = range(-6, 7)
coefficients = st.integers(-3, 3)
expressions = st.builds(
    lambda constant, *factors: linear(zip((X, Y, Z), factors, strict=True), constant),
    st.integers(-8, 8),
    *[coefficients] * 3,
)
bounds = [side for of in (X, Y, Z) for side in (variable(of) + 6, -variable(of) + 6)]


def value(expression, x, y, z):
    at = {X: x, Y: y, Z: z}
    return expression.constant + sum(scale * at[of] for of, scale in expression.terms)


def test_printing_and_canonical_form():
    rows, columns = variable(X), variable(Y)
    assert str(rows - columns + 4) == "4 + i0 - i1"
    assert str(-rows * 2) == "-2*i0"
    assert str(affine(0)) == "0"
    assert rows + columns - rows == columns
    assert columns + rows == rows + columns
    assert (rows - rows).is_constant


def test_substitution_is_simultaneous():
    rows, columns = variable(X), variable(Y)
    swapped = (rows * 2 - columns).substitute({X: columns, Y: rows + 1})
    assert swapped == columns * 2 - rows - 1


@given(expressions, expressions, st.integers(-3, 3), st.tuples(*[st.sampled_from(BOX)] * 3))
def test_arithmetic(left, right, factor, at):
    assert value(left + right, *at) == value(left, *at) + value(right, *at)
    assert value(left - right, *at) == value(left, *at) - value(right, *at)
    assert value(left * factor, *at) == value(left, *at) * factor


@given(st.lists(expressions, max_size=4))
def test_contradictions_have_no_solution(constraints):
    """Sound for every system, and complete for the systems that masks give rise to (below)."""
    solvable = any(
        all(value(constraint, *at) >= 0 for constraint in constraints)
        for at in itertools.product(BOX, repeat=3)
    )
    if solvable:
        assert not is_contradiction([*constraints, *bounds])


@given(st.lists(st.tuples(st.permutations([X, Y, Z]), st.integers(-8, 8)), max_size=5))
def test_differences_of_two_are_decided(constraints):
    """What compares two positions is decided both ways."""
    system = [variable(first) - variable(second) + c for (first, second, _), c in constraints]
    solvable = any(
        all(value(constraint, *at) >= 0 for constraint in system)
        for at in itertools.product(BOX, repeat=3)
    )
    assert is_contradiction([*system, *bounds]) == (not solvable)


def test_integers_between():
    """No integer lies between 1/2 and 2/3, though rationals do."""
    twice, thrice = variable(X) * 2, variable(X) * 3
    assert is_contradiction([twice - 1, -thrice + 2])


def test_sizes_take_part():
    size = variable(Size("s0", 2, 4096))
    query, key = variable(X), variable(Y)
    inside = [query, key, size - query - 1, size - key - 1]
    assert is_contradiction([*inside, query - key - 4096, -size + 4096])
    assert not is_contradiction([*inside, query - key - 4095, -size + 4096])


def test_too_many_constraints_conclude_nothing():
    many = [
        variable(X) * a + variable(Y) * b + c
        for a, b, c in itertools.product(range(1, 8), repeat=3)
    ]
    assert not is_contradiction([*many, Affine(0) - variable(X), variable(X) - 1])
