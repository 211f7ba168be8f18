"""Sizes that were dynamic when a graph was captured, kept as expressions of named symbols.

The one place of this package that looks into SymInts. What a script does with the names is not
decided here.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import sympy
import torch
from torch.utils._sympy.printers import PythonPrinter


@dataclass(frozen=True, slots=True)
class SymbolicSize:
    """An integer that was an expression of symbols.

    Attributes:
        text: The expression in Python, such as `s77 // 2`.
        value: What it was in the run that was recorded.
    """

    text: str
    value: int


Size = int | SymbolicSize


def size_value(size: Size) -> int:
    """Returns the number that a size was."""
    return size.value if isinstance(size, SymbolicSize) else size


def size_source(size: Size) -> str:
    """Returns a size as an expression."""
    return size.text if isinstance(size, SymbolicSize) else str(size)


def sizes_source(sizes: Sequence[Size]) -> str:
    """Returns a tuple of sizes as an expression.

    Example:
        >>> sizes_source([SymbolicSize("s77", 16), 4])
        '(s77, 4)'
    """
    inner = ", ".join(size_source(size) for size in sizes)
    return f"({inner},)" if len(sizes) == 1 else f"({inner})"


class Symbols:
    """The symbols of one graph and their values.

    Symbols are bound as pairs of a symbolic and a real number come by; expressions are resolved
    when all are.
    """

    def __init__(self) -> None:
        """Starts without any."""
        self._values: dict[sympy.Symbol, int] = {}

    def bind(self, symbolic: object, real: int | None) -> None:
        """Learns from one number.

        Args:
            symbolic: A SymInt, or a plain number, which teaches nothing.
            real: The number of the run; None when only torch's hint is known.
        """
        if not isinstance(symbolic, torch.SymInt):
            return
        expression = symbolic.node.expr
        if isinstance(expression, sympy.Symbol) and real is not None:
            self._values.setdefault(expression, real)
            return
        for symbol in expression.free_symbols:
            hint = symbolic.node.shape_env.backed_var_to_val.get(symbol)
            if getattr(hint, "is_Integer", isinstance(hint, int)):  # a ragged size is none
                self._values.setdefault(symbol, int(hint))

    def resolve(self, symbolic: Any, real: int | None) -> Size:
        """Returns a number as a size, symbolic only where that gives the right number.

        Args:
            symbolic: A SymInt or a plain number.
            real: The number of the run; None when only torch's hint is known.
        """
        if not isinstance(symbolic, torch.SymInt):
            return int(symbolic if real is None else real)
        expression = symbolic.node.expr
        value = expression.subs(self._values)
        known = int(value) if getattr(value, "is_Integer", False) else None
        number = next((n for n in (real, known, symbolic.node.hint) if n is not None), 2)
        if expression.is_Integer or known != number:
            return int(number)
        return SymbolicSize(PythonPrinter().doprint(expression), int(number))

    def named(self) -> dict[str, int]:
        """Returns the symbols' names and values, in the order of the names."""
        pairs = ((str(symbol), value) for symbol, value in self._values.items())
        return dict(sorted(pairs, key=lambda pair: (len(pair[0]), pair[0])))
