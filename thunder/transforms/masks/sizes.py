"""torch's symbolic sizes as affine expressions: the adapter to torch's symbolic shapes.

What is known of a size's range is what Dynamo guards on or the program asserts, so a proof that
uses it holds for every input that the compiled graph accepts.
"""

from __future__ import annotations

import sympy
import torch
from torch.utils._sympy.numbers import int_oo

from thunder.transforms.masks.affine import LONGEST, Affine, Size, linear


def size_expression(value: int | torch.SymInt) -> Affine:
    """Returns a size as an affine expression.

    Args:
        value: A size of a fake tensor, or an integer that a program computes from sizes.

    Returns:
        The expression. A part that is not linear (a product of sizes, a division) becomes a
        variable of its own, named by its text.
    """
    if isinstance(value, int):
        return Affine(value)
    expression = sympy.expand(value.node.expr)
    parts = expression.as_coefficients_dict()
    if not all(coefficient.is_Integer for coefficient in parts.values()):
        parts = {expression: sympy.Integer(1)}
    constant = int(parts.get(sympy.S.One, 0))
    terms = [
        (_size(part, value), int(coefficient))
        for part, coefficient in parts.items()
        if part != sympy.S.One
    ]
    return linear(terms, constant)


def _size(expression: sympy.Expr, of: torch.SymInt) -> Size:
    known = of.node.shape_env.bound_sympy(expression)
    return Size(str(expression), _bound(known.lower, -LONGEST), _bound(known.upper, LONGEST))


def _bound(bound: sympy.Expr, unbounded: int) -> int:
    if bound in (int_oo, -int_oo, sympy.oo, -sympy.oo) or not bound.is_number:
        return unbounded
    return max(-LONGEST, min(LONGEST, int(bound)))
