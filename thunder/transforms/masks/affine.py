"""Integer expressions that are linear in indices and sizes, and contradictions between them.

An attention mask that a program computes from `arange`s compares such expressions: the key's
index with the query's, less the length of a window. Whether two masks agree is then a question
about linear inequalities, answered here without looking at any element. Where the expressions
come from is for the modules that use them.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import TypeAlias, final

_MOST_CONSTRAINTS = 200
"""Elimination can square the number of constraints; beyond this many nothing is concluded."""

LONGEST = 2**47
"""No dimension is longer: a tensor of more bytes than that fits no machine's address space."""


@final
@dataclass(frozen=True, slots=True)
class Index:
    """The position along one dimension of the tensor that is described."""

    dimension: int


@final
@dataclass(frozen=True, slots=True)
class Level:
    """The position along the dimension that a `torch.vmap` of this nesting level maps over."""

    number: int


@final
@dataclass(frozen=True, slots=True)
class Size:
    """A size, or an expression of sizes, that is known only when the program runs.

    Attributes:
        name: Its text; two sizes of one name are one.
        lower: No value is smaller.
        upper: No value is larger.
    """

    name: str
    lower: int
    upper: int


Variable: TypeAlias = Index | Level | Size


@final
@dataclass(frozen=True, slots=True)
class Affine:
    """An integer expression that is linear in its variables, with integer coefficients.

    Example:
        >>> query, key = variable(Index(2)), variable(Index(3))
        >>> print(query - key + 4)
        4 + i2 - i3
    """

    constant: int
    terms: tuple[tuple[Variable, int], ...] = ()
    """Each variable once, in `_order`, with a coefficient other than zero."""

    def __add__(self, other: Affine | int) -> Affine:
        other = affine(other)
        return linear([*self.terms, *other.terms], self.constant + other.constant)

    def __sub__(self, other: Affine | int) -> Affine:
        return self + affine(other) * -1

    def __mul__(self, factor: int) -> Affine:
        terms = tuple((variable, coefficient * factor) for variable, coefficient in self.terms)
        return Affine(self.constant * factor, terms if factor else ())

    def __neg__(self) -> Affine:
        return self * -1

    def __str__(self) -> str:
        text = str(self.constant) if self.constant or not self.terms else ""
        for variable, coefficient in self.terms:
            size = "" if abs(coefficient) == 1 else f"{abs(coefficient)}*"
            sign = (" - " if text else "-") if coefficient < 0 else (" + " if text else "")
            text += f"{sign}{size}{_name(variable)}"
        return text

    @property
    def is_constant(self) -> bool:
        """Whether it has no variables."""
        return not self.terms

    def substitute(self, replacements: Mapping[Variable, Affine]) -> Affine:
        """Returns the expression with variables replaced, all at once.

        Args:
            replacements: What to put in place of a variable; others stay.
        """
        if not any(variable in replacements for variable, _ in self.terms):
            return self
        constant = self.constant
        terms: list[tuple[Variable, int]] = []
        for variable, coefficient in self.terms:
            replacement = replacements.get(variable)
            if replacement is None:
                terms.append((variable, coefficient))
            else:
                constant += replacement.constant * coefficient
                terms.extend((other, scale * coefficient) for other, scale in replacement.terms)
        return linear(terms, constant)


def variable(of: Variable) -> Affine:
    """Returns the expression that is one variable."""
    return Affine(0, ((of, 1),))


def affine(value: Affine | int) -> Affine:
    """Returns an integer as an expression; an expression as it is."""
    return value if isinstance(value, Affine) else Affine(int(value))


def linear(terms: Iterable[tuple[Variable, int]], constant: int) -> Affine:
    """Returns the sum of multiples of variables and a constant.

    Args:
        terms: Variables and their factors; a variable may come more than once.
        constant: The constant.
    """
    total: dict[Variable, int] = {}
    for variable, coefficient in terms:
        total[variable] = total.get(variable, 0) + coefficient
    kept = [(variable, coefficient) for variable, coefficient in total.items() if coefficient]
    return Affine(constant, tuple(sorted(kept, key=lambda term: _order(term[0]))))


def is_contradiction(constraints: Iterable[Affine]) -> bool:
    """Says whether no integers make all expressions zero or more.

    The method is Fourier-Motzkin elimination (Schrijver, *Theory of Linear and Integer
    Programming*, 1986, section 12.2) over the rationals, with each inequality rounded to
    integers after dividing by the greatest common divisor of its coefficients.

    Args:
        constraints: Expressions that are claimed to be zero or more.

    Returns:
        True when it is proven that they cannot all be; False when they can or it is not known.

    Example:
        >>> row, column = variable(Index(0)), variable(Index(1))
        >>> is_contradiction([row - column, column - row - 1])
        True
        >>> is_contradiction([row - column, column - row])
        False
    """
    system = {_tightened(constraint) for constraint in constraints}
    while True:
        if any(c.is_constant and c.constant < 0 for c in system):
            return True
        system = {c for c in system if not c.is_constant}
        if not system or len(system) > _MOST_CONSTRAINTS:
            return False
        system = _eliminated(system, _cheapest(system))


def _eliminated(system: set[Affine], variable: Variable) -> set[Affine]:
    """Combines each lower bound of the variable with each upper bound."""
    lower, upper, rest = _sorted_by_sign(system, variable)
    combined = {
        _tightened(above * low_scale + below * high_scale)
        for (below, low_scale), (above, high_scale) in itertools.product(lower, upper)
    }
    return rest | combined


def _sorted_by_sign(
    system: set[Affine], variable: Variable
) -> tuple[list[tuple[Affine, int]], list[tuple[Affine, int]], set[Affine]]:
    lower: list[tuple[Affine, int]] = []
    upper: list[tuple[Affine, int]] = []
    rest: set[Affine] = set()
    for constraint in system:
        coefficient = dict(constraint.terms).get(variable, 0)
        if coefficient > 0:
            lower.append((constraint, coefficient))
        elif coefficient < 0:
            upper.append((constraint, -coefficient))
        else:
            rest.add(constraint)
    return lower, upper, rest


def _cheapest(system: set[Affine]) -> Variable:
    """Returns the variable whose elimination leaves the fewest constraints."""
    signs: dict[Variable, list[int]] = {}
    for constraint in system:
        for variable, coefficient in constraint.terms:
            signs.setdefault(variable, [0, 0])[coefficient > 0] += 1
    return min(signs, key=lambda variable: (math.prod(signs[variable]), _order(variable)))


def _tightened(constraint: Affine) -> Affine:
    """Divides by the coefficients' common divisor; an integer above 2.5 is 3 or more."""
    divisor = math.gcd(*(coefficient for _, coefficient in constraint.terms))
    if divisor <= 1:
        return constraint
    terms = tuple((variable, coefficient // divisor) for variable, coefficient in constraint.terms)
    return Affine(constraint.constant // divisor, terms)


def _order(variable: Variable) -> tuple[int, int, str]:
    match variable:
        case Index(dimension):
            return (0, dimension, "")
        case Level(number):
            return (1, number, "")
        case Size(name):
            return (2, 0, name)


def _name(variable: Variable) -> str:
    match variable:
        case Index(dimension):
            return f"i{dimension}"
        case Level(number):
            return f"v{number}"
        case Size(name):
            return name
