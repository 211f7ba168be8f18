"""Functions of the index: cases that no index reaches disappear, equal ones become one."""

from __future__ import annotations

import torch

from tests.transforms.masks.captured import capture
from thunder.transforms.masks.affine import Affine, Index, Size, variable
from thunder.transforms.masks.piecewise import Choice, Leaf, Space, combine, simplify
from thunder.transforms.masks.sizes import size_expression

ROW, COLUMN = variable(Index(0)), variable(Index(1))
SPACE = Space((Affine(6), Affine(8)))
YES, NO = Leaf(True), Leaf(False)


def test_unreachable_cases_disappear():
    assert simplify(Choice(ROW, YES, NO), SPACE) == YES
    assert simplify(Choice(ROW - 6, YES, NO), SPACE) == NO
    inner = Choice(ROW - COLUMN + 1, YES, NO)
    assert simplify(Choice(ROW - COLUMN, inner, NO), SPACE) == Choice(ROW - COLUMN, YES, NO)


def test_equal_cases_become_one():
    same = combine(lambda value: Leaf(value is not None), [Choice(ROW - COLUMN, YES, NO)], SPACE)
    assert same == YES


def test_conditions_are_compared_by_meaning():
    """Row >= column, and not (column > row): one condition, written in two ways."""
    left = Choice(ROW - COLUMN, YES, NO)
    right = Choice(COLUMN - ROW - 1, NO, YES)
    assert combine(lambda a, b: Leaf(a == b), [left, right], SPACE) == YES


def test_too_many_cases_are_not_followed():
    tree = YES
    for step in range(20):
        tree = Choice(ROW * (step + 1) - COLUMN * (20 - step) - 1, tree, NO)
    assert simplify(tree, SPACE) is None


def test_what_cannot_be_told_stays_so():
    assert combine(lambda value: None, [YES], SPACE) is None


def test_symbolic_sizes():
    """Linear parts are taken apart; what is not linear is one size of its own."""

    def program(x, y):
        a, b = x.shape[0], y.shape[0]
        return [torch.arange(n) for n in (a, 2 * a - b + 3, a * b, a // 2)]

    graph = capture(program, torch.randn(7), torch.randn(5), dynamic=True)
    nodes = graph.graph.find_nodes(op="call_function", target=torch.arange)
    first, linear, product, quotient = (
        size_expression(node.meta["example_value"].shape[0]) for node in nodes
    )
    ((a, one),) = first.terms
    assert isinstance(a, Size) and a.lower == 2 and one == 1
    assert dict(linear.terms)[a] == 2 and linear.constant == 3
    assert sorted(linear.terms, key=str)[0][1] in (-1, 2) and len(linear.terms) == 2
    assert len(product.terms) == 1 and product.constant == 0
    ((half, _),) = quotient.terms
    assert isinstance(half, Size) and half.lower == 1
