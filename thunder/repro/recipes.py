"""How a script draws a tensor's values: recipes that print themselves as expressions.

A recipe says what was found about the values of an input. Finding it is `measuring.py`'s job, and
where the values lie in memory is `input_source.py`'s.
"""

from __future__ import annotations

import abc
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import final

import torch

_REAL_PART = {
    torch.complex32: torch.float32,
    torch.complex64: torch.float32,
    torch.complex128: torch.float64,
}


@final
@dataclass(frozen=True, slots=True)
class Target:
    """What an expression must give.

    Attributes:
        shape: The shape, as source.
        dtype: The dtype.
        device: The device's name.
    """

    shape: str
    dtype: torch.dtype
    device: str

    def options(self, default: torch.dtype | None) -> str:
        """Returns dtype and device as further arguments, where they are not the defaults.

        Args:
            default: The dtype that need not be said; None where it must not be.
        """
        dtype = "" if default in (None, self.dtype) else f", dtype={self.dtype}"
        return dtype + ("" if self.device == "cpu" else f', device="{self.device}"')

    def always(self) -> str:
        """Returns dtype and device as further arguments, the dtype in any case."""
        return f", dtype={self.dtype}" + self.options(None)


class AbstractRecipe(abc.ABC):
    """What is known about the values of a tensor."""

    @abc.abstractmethod
    def source(self, target: Target) -> str:
        """Returns an expression that gives a new tensor with such values."""


@final
@dataclass(frozen=True, slots=True)
class Exactly(AbstractRecipe):
    """All the values, in order."""

    values: tuple[bool | int | float | complex, ...]

    def source(self, target: Target) -> str:
        """Lists them."""
        listed = ", ".join(number_source(value) for value in self.values)
        if target.shape == "()":
            return f"torch.tensor({listed}{target.always()})"
        flat = f"torch.tensor([{listed}]{target.always()})"
        return flat if target.shape == f"({len(self.values)},)" else f"{flat}.view({target.shape})"


@final
@dataclass(frozen=True, slots=True)
class Constant(AbstractRecipe):
    """One value everywhere."""

    value: bool | int | float | complex

    def source(self, target: Target) -> str:
        """Fills a tensor."""
        return f"torch.full({target.shape}, {number_source(self.value)}{target.always()})"


@final
@dataclass(frozen=True, slots=True)
class Steps(AbstractRecipe):
    """Numbers that rise or fall evenly, over the whole tensor or anew in each row."""

    start: int
    step: int
    in_rows: bool = False

    def source(self, target: Target) -> str:
        """Calls `steps`."""
        rows = ", in_rows=True" if self.in_rows else ""
        more = rows + target.options(torch.int64)
        return f"steps({target.shape}, {self.start}, {self.step}{more})"


@final
@dataclass(frozen=True, slots=True)
class IntegerRange(AbstractRecipe):
    """Whole numbers of a range, both ends included; `order` as the support code knows it."""

    low: int
    high: int
    order: str | None = None

    def source(self, target: Target) -> str:
        """Calls `integers`."""
        order = "" if self.order is None else f', order="{self.order}"'
        more = order + target.options(torch.int64)
        return f"integers({target.shape}, {self.low}, {self.high}{more})"


@final
@dataclass(frozen=True, slots=True)
class BooleanDensity(AbstractRecipe):
    """Truth values of which a fraction is true."""

    density: float

    def source(self, target: Target) -> str:
        """Calls `booleans`."""
        return f"booleans({target.shape}, {self.density}{target.options(None)})"


@final
@dataclass(frozen=True, slots=True)
class LowerTriangle(AbstractRecipe):
    """True on and below the diagonal of the last two dimensions: a causal mask."""

    def source(self, target: Target) -> str:
        """Cuts a triangle out of ones."""
        return f"torch.ones({target.shape}{target.always()}).tril()"


@final
@dataclass(frozen=True, slots=True)
class Choices(AbstractRecipe):
    """A few distinct values with the fraction of each."""

    values: tuple[int | float, ...]
    fractions: tuple[float, ...]

    def source(self, target: Target) -> str:
        """Calls `choices`."""
        values, fractions = _list_source(self.values), _list_source(self.fractions)
        more = target.options(torch.float32)
        return f"choices({target.shape}, {values}, {fractions}{more})"


@final
@dataclass(frozen=True, kw_only=True, slots=True)
class FloatRange(AbstractRecipe):
    """Numbers of a range, normal with a mean and a deviation, or uniform without.

    Attributes:
        low: The smallest finite value.
        high: The largest finite value.
        mean: Mean of the finite values; None for a uniform distribution.
        std: Standard deviation of the finite values; None for a uniform distribution.
        fractions: Which fraction is `nan`, `inf`, `negative_inf` or `zero`, where any is.
    """

    low: float
    high: float
    mean: float | None = None
    std: float | None = None
    fractions: Mapping[str, float] = field(default_factory=dict)

    def source(self, target: Target) -> str:
        """Calls `floats`."""
        facts = {"low": self.low, "high": self.high, "mean": self.mean, "std": self.std}
        said = {k: v for k, v in facts.items() if v is not None} | dict(self.fractions)
        listed = ", ".join(f"{name}={number_source(value)}" for name, value in said.items())
        return f"floats({target.shape}, {listed}{target.options(torch.float32)})"


@final
@dataclass(frozen=True, slots=True)
class ComplexParts(AbstractRecipe):
    """A recipe for the real and one for the imaginary part."""

    real: AbstractRecipe
    imaginary: AbstractRecipe

    def source(self, target: Target) -> str:
        """Puts two real tensors together."""
        part = Target(target.shape, _REAL_PART[target.dtype], target.device)
        both = f"torch.complex({self.real.source(part)}, {self.imaginary.source(part)})"
        return f"{both}.to(torch.complex32)" if target.dtype is torch.complex32 else both


@final
@dataclass(frozen=True, slots=True)
class Unmeasured(AbstractRecipe):
    """Nothing is known: the tensor was fake, or has no values at all."""

    def source(self, target: Target) -> str:
        """Draws normal numbers, or zeros where such numbers make no sense."""
        if target.device == "meta":
            return f"torch.empty({target.shape}{target.always()})"
        if target.dtype.is_floating_point and target.dtype.itemsize > 1:
            return f"torch.randn({target.shape}{target.options(torch.float32)})"
        if target.dtype.is_complex:
            return f"torch.randn({target.shape}{target.always()})"
        return f"torch.zeros({target.shape}{target.always()})"


def number_source(value: bool | int | float | complex) -> str:
    """Returns a number as an expression that needs no import.

    Example:
        >>> number_source(float("-inf")), number_source(0.5)
        ("float('-inf')", '0.5')
    """
    if isinstance(value, complex):
        return f"complex({number_source(value.real)}, {number_source(value.imag)})"
    if isinstance(value, float) and not math.isfinite(value):
        return f"float({str(value)!r})"
    return repr(value)


def _list_source(values: Sequence[int | float]) -> str:
    return f"[{', '.join(number_source(value) for value in values)}]"
