"""Rules of operations that make a tensor from constants, or work element by element.

Floats and bools are computed by torch itself on single elements, so that dtype promotion and
rounding are torch's own. Integers stay expressions of the index.
"""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any

import torch

from thunder.transforms.masks.affine import Affine, affine
from thunder.transforms.masks.indexed_tensor import INTEGERS, IndexedTensor, cast
from thunder.transforms.masks.operators import Result, Rule
from thunder.transforms.masks.piecewise import Choice, Leaf, Tree, Value, combine


def filled(value: int) -> Rule:
    """Returns the rule of an operation that makes a tensor of one value, such as `ones`."""

    def rule(result: Result, *shape: Any, **options: Any) -> Tree | None:
        del shape, options
        return cast(Affine(value), result.dtype)

    return rule


def full(result: Result, size: Any, fill_value: Any, **options: Any) -> Tree | None:
    """`torch.full`, and `full_like`, which is given a tensor for the size."""
    del size, options
    return _filled_with(result, fill_value)


def new_full(result: Result, like: Any, size: Any, fill_value: Any, **options: Any) -> Tree | None:
    """`Tensor.new_full`."""
    del like, size, options
    return _filled_with(result, fill_value)


def tensor(result: Result, data: Any, **options: Any) -> Tree | None:
    """`torch.tensor` of a number."""
    del options
    return _filled_with(result, data)


def fill(result: Result, tensor: Any, value: Any) -> Tree | None:
    """`Tensor.fill_`."""
    del tensor
    return _filled_with(result, value)


def where(result: Result, condition: Any, chosen: Any, other: Any) -> Tree | None:
    """`torch.where`."""

    def pick(holds: Value, yes: Value, no: Value) -> Tree | None:
        return cast(yes if holds else no, result.dtype)

    if not isinstance(condition, IndexedTensor) or condition.dtype is not torch.bool:
        return None
    return _pointwise(result, pick, condition, chosen, other)


def method_where(result: Result, chosen: Any, condition: Any, other: Any) -> Tree | None:
    """`Tensor.where`, whose operands come in another order."""
    return where(result, condition, chosen, other)


def masked_fill(result: Result, tensor: Any, mask: Any, value: Any) -> Tree | None:
    """`torch.masked_fill`."""
    return where(result, mask, value, tensor)


def converted(result: Result, tensor: Any, *args: Any, **kwargs: Any) -> Tree | None:
    """Conversions of dtype and device, and copies: the result's dtype says all."""
    del args, kwargs
    return _pointwise(result, lambda value: cast(value, result.dtype), tensor)


def arithmetic(function: Callable[..., Any], on_integers: Callable[..., Any] | None = None) -> Rule:
    """Returns the rule of an operation on numbers.

    Args:
        function: The torch function.
        on_integers: The same on integer expressions; None when it has no such form.
    """

    def rule(result: Result, *operands: Any) -> Tree | None:
        def compute(*values: Value) -> Tree | None:
            if all(_is_constant(value) for value in values):
                return _evaluated(function, operands, values, result.dtype)
            if on_integers is None or result.dtype not in INTEGERS:
                return None
            numbers = _integers(values)
            computed = on_integers(*numbers) if numbers is not None else None
            return None if computed is None else Leaf(computed)

        return _pointwise(result, compute, *operands)

    return rule


def comparison(function: Callable[..., Any], on_integers: Callable[[Affine], Tree]) -> Rule:
    """Returns the rule of a comparison.

    Args:
        function: The torch function.
        on_integers: Takes the difference of the operands, as an integer expression.
    """

    def rule(result: Result, left: Any, right: Any) -> Tree | None:
        def compare(*values: Value) -> Tree | None:
            if all(_is_constant(value) for value in values):
                return _evaluated(function, (left, right), values, result.dtype)
            numbers = _integers(values)
            return None if numbers is None else on_integers(numbers[0] - numbers[1])

        return _pointwise(result, compare, left, right)

    return rule


def extremum(function: Callable[..., Any], sign: int) -> Rule:
    """Returns the rule of `maximum` (sign 1) or `minimum` (sign -1) of two tensors."""

    def rule(result: Result, left: Any, right: Any) -> Tree | None:
        def compute(*values: Value) -> Tree | None:
            if all(_is_constant(value) for value in values):
                return _evaluated(function, (left, right), values, result.dtype)
            numbers = _integers(values)
            if numbers is None or result.dtype not in INTEGERS:
                return None
            return Choice((numbers[0] - numbers[1]) * sign, Leaf(numbers[0]), Leaf(numbers[1]))

        return _pointwise(result, compute, left, right)

    return rule


def absolute(result: Result, tensor: Any) -> Tree | None:
    """`torch.abs`."""

    def compute(value: Value) -> Tree | None:
        if isinstance(value, Affine):
            return Choice(value, Leaf(value), Leaf(-value))
        return _evaluated(torch.abs, (tensor,), (value,), result.dtype)

    return _pointwise(result, compute, tensor)


def _not_negative(difference: Affine) -> Tree:
    return Choice(difference, Leaf(True), Leaf(False))


def _zero(difference: Affine, yes: Leaf, no: Leaf) -> Tree:
    return Choice(difference, Choice(-difference, yes, no), no)


def _reversed_difference(left: Any, right: Any) -> Any:
    return right - left


def _product(left: Affine, right: Affine) -> Affine | None:
    if left.is_constant:
        return right * left.constant
    return left * right.constant if right.is_constant else None


CREATED: dict[str, Rule] = {
    "ones": filled(1),
    "ones_like": filled(1),
    "new_ones": filled(1),
    "zeros": filled(0),
    "zeros_like": filled(0),
    "new_zeros": filled(0),
    "full": full,
    "full_like": full,
    "new_full": new_full,
    "tensor": tensor,
    "scalar_tensor": tensor,
    "new_tensor": full,
}
"""Rules by name of operations that make a tensor from constants."""

_ARITHMETIC: dict[str, Rule] = {
    "add": arithmetic(operator.add, operator.add),
    "sub": arithmetic(operator.sub, operator.sub),
    "subtract": arithmetic(operator.sub, operator.sub),
    "rsub": arithmetic(_reversed_difference, _reversed_difference),
    "mul": arithmetic(operator.mul, _product),
    "multiply": arithmetic(operator.mul, _product),
    "radd": arithmetic(operator.add, operator.add),
    "rmul": arithmetic(operator.mul, _product),
    "neg": arithmetic(operator.neg, operator.neg),
    "negative": arithmetic(operator.neg, operator.neg),
    "abs": absolute,
    "maximum": extremum(torch.maximum, 1),
    "minimum": extremum(torch.minimum, -1),
}
_COMPARISONS: dict[str, Rule] = {
    "gt": comparison(operator.gt, lambda difference: _not_negative(difference - 1)),
    "ge": comparison(operator.ge, lambda difference: _not_negative(difference)),
    "lt": comparison(operator.lt, lambda difference: _not_negative(-difference - 1)),
    "le": comparison(operator.le, lambda difference: _not_negative(-difference)),
    "eq": comparison(operator.eq, lambda difference: _zero(difference, Leaf(True), Leaf(False))),
    "ne": comparison(operator.ne, lambda difference: _zero(difference, Leaf(False), Leaf(True))),
}
_COMPARISONS |= {
    "greater": _COMPARISONS["gt"],
    "greater_equal": _COMPARISONS["ge"],
    "less": _COMPARISONS["lt"],
    "less_equal": _COMPARISONS["le"],
    "not_equal": _COMPARISONS["ne"],
}
_LOGIC: dict[str, Rule] = {
    name: arithmetic(function)
    for function, names in {
        operator.and_: ("bitwise_and", "and_"),
        operator.or_: ("bitwise_or", "or_"),
        operator.xor: ("bitwise_xor", "xor"),
        operator.invert: ("bitwise_not", "invert"),
        torch.logical_and: ("logical_and",),
        torch.logical_or: ("logical_or",),
        torch.logical_xor: ("logical_xor",),
        torch.logical_not: ("logical_not",),
    }.items()
    for name in names
}

FRESH: dict[str, Rule] = {
    **_ARITHMETIC,
    **_COMPARISONS,
    **_LOGIC,
    "masked_fill": masked_fill,
    "clone": converted,
}
"""Rules by name of operations whose result has memory of its own."""

VIEWS: dict[str, Rule] = dict.fromkeys(
    (
        *("to", "type", "type_as", "bool", "int", "long", "short"),
        *("float", "half", "bfloat16", "double"),
        *("contiguous", "detach", "cpu", "cuda"),
    ),
    converted,
)
"""Rules by name of operations that may return their operand itself."""

WRITTEN: tuple[str, ...] = (
    *("add", "sub", "subtract", "mul", "multiply", "neg", "abs"),
    *("bitwise_and", "bitwise_or", "bitwise_xor", "bitwise_not"),
    *("logical_and", "logical_or", "logical_xor", "logical_not"),
    "masked_fill",
)
"""Names of the operations that have an in-place form."""


def _filled_with(result: Result, value: Any) -> Tree | None:
    if isinstance(value, IndexedTensor):
        return _pointwise(result, lambda element: cast(element, result.dtype), value)
    constant = _constant(value)
    return None if constant is None else cast(constant, result.dtype)


def _pointwise(result: Result, function: Callable[..., Tree | None], *operands: Any) -> Tree | None:
    """Applies a function to the operands' elements at every index of the result."""
    trees: list[Tree] = []
    for operand in operands:
        constant = _constant(operand)
        tree = result.broadcast(operand) if constant is None else Leaf(constant)
        if tree is None:
            return None
        trees.append(tree)
    return combine(function, trees, result.space)


def _constant(operand: Any) -> Value | None:
    match operand:
        case bool() | float() | Affine():
            return operand
        case int():
            return Affine(operand)
        case _:
            return None


def _is_constant(value: Value) -> bool:
    return not isinstance(value, Affine) or value.is_constant


def _integers(values: tuple[Value, ...]) -> list[Affine] | None:
    if any(isinstance(value, float) for value in values):
        return None
    return [value if isinstance(value, Affine) else affine(int(value)) for value in values]


def _evaluated(
    function: Callable[..., torch.Tensor],
    operands: tuple[Any, ...],
    values: tuple[Value, ...],
    dtype: torch.dtype,
) -> Leaf | None:
    """Lets torch compute one element, with operands of the dtypes and ranks that it promotes."""
    elements: list[Any] = []
    for operand, value in zip(operands, values, strict=True):
        number = value.constant if isinstance(value, Affine) else value
        if isinstance(operand, IndexedTensor):
            element = torch.tensor(number, dtype=operand.dtype)
            number = element.reshape(1) if operand.shape else element
        elements.append(number)
    computed = function(*elements)
    if computed.dtype is not dtype:
        return None
    number = computed.item()
    return Leaf(Affine(int(number)) if dtype in INTEGERS else number)
