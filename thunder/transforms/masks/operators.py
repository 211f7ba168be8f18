"""Which torch functions the analysis of masks understands, and what they do to memory.

Dynamo writes one operation in several ways: `operator.le`, `torch.le`, the method `le`. The
table made here joins them. What an operation computes is a rule of `pointwise` or `layout`; the
analysis asks the memory behaviour, because a mask that is written to later is another mask.
"""

from __future__ import annotations

import enum
import inspect
import operator
import types
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, TypeAlias, final

import torch
from torch import fx

from thunder.transforms.masks.indexed_tensor import IndexedTensor, broadcast
from thunder.transforms.masks.piecewise import Space, Tree


@final
class Opaque:
    """An operand of which nothing is known."""


OPAQUE = Opaque()


@final
@dataclass(frozen=True, slots=True)
class Result:
    """What is known of an operation's result before its elements are.

    Attributes:
        space: Its shape.
        dtype: Its dtype.
    """

    space: Space
    dtype: torch.dtype

    def broadcast(self, operand: Any) -> Tree | None:
        """Returns an operand's elements over the result's indices, None when not known."""
        return broadcast(operand, self.space) if isinstance(operand, IndexedTensor) else None


Rule: TypeAlias = Callable[..., Tree | None]
"""Takes the `Result` and the operands; returns the result's elements, or None.

Operands are `IndexedTensor`, `Affine` (symbolic sizes), Python values and containers of these,
or `OPAQUE`.
"""


class Memory(enum.Enum):
    """What an operation does to the memory of its operands."""

    FRESH = "fresh"
    """The result has memory of its own."""

    VIEW = "view"
    """The result may share memory with operands."""

    WRITES = "writes"
    """The result is the first operand, with other elements."""


@final
@dataclass(frozen=True, slots=True)
class Operator:
    """An operation that the analysis understands.

    Attributes:
        rule: What it computes.
        memory: What it does to memory.
        creates: Whether its result has values of its own, whatever its operands hold.
    """

    rule: Rule
    memory: Memory
    creates: bool = False

    def apply(
        self, result: Result, args: tuple[Any, ...], kwargs: Mapping[str, Any]
    ) -> Tree | None:
        """Returns the result's elements, None when they are not known.

        Args:
            result: Shape and dtype of the result.
            args: Positional operands.
            kwargs: Operands by name. One that the rule does not know makes the result unknown.
        """
        try:
            bound = inspect.signature(self.rule).bind(result, *args, **kwargs)
        except TypeError:  # a form of the call that the rule was not written for
            return None
        return self.rule(*bound.args, **bound.kwargs)


OperatorTable: TypeAlias = Mapping[Any, Operator]


def operator_table(
    *,
    created: Mapping[str, Rule],
    fresh: Mapping[str, Rule],
    views: Mapping[str, Rule],
    written: Iterable[str],
    others: Mapping[Any, Operator],
) -> OperatorTable:
    """Makes the table from every way of writing an operation to what it does.

    Args:
        created: Operations that make a tensor from constants, by the name that they have in
            `torch`, in `operator` or as a method.
        fresh: Operations whose result has memory of its own.
        views: Operations whose result may share memory.
        written: Which of these have an in-place form (`add_`, `+=`).
        others: Operations by function or method name, where that is no name of the others' kind.
    """
    known = {
        **{name: Operator(rule, Memory.FRESH, creates=True) for name, rule in created.items()},
        **{name: Operator(rule, Memory.FRESH) for name, rule in fresh.items()},
        **{name: Operator(rule, Memory.VIEW) for name, rule in views.items()},
    }
    table: dict[Any, Operator] = {}
    for name, operation in known.items():
        spellings = [*_spellings(name), *_special_spellings(name.rstrip("_"))]
        table.update(dict.fromkeys(spellings, operation))
    for name in written:
        in_place = Operator(known[name].rule, Memory.WRITES)
        table.update(dict.fromkeys(_in_place_spellings(name), in_place))
    table.update(others)
    return table


def written_operands(node: fx.Node) -> list[fx.Node]:
    """Returns the operands that an operation without a rule may write to.

    Args:
        node: A node of a graph from Dynamo.

    Returns:
        None of them only for methods and built-in functions of torch or Python that are named as
        operations without side effects, and for a few functions of `torch.nn.functional`.
    """
    if node.op == "call_method" and node.target != "set_" and "out" not in node.kwargs:
        return node.all_input_nodes[:1] if str(node.target).endswith("_") else []
    return node.all_input_nodes if _may_write(node) else []


def _may_write(node: fx.Node) -> bool:
    if "out" in node.kwargs or node.kwargs.get("inplace") or node.op != "call_function":
        return True
    if isinstance(node.target, torch._ops.OpOverload):
        return node.target._schema.is_mutable
    if isinstance(node.target, types.BuiltinFunctionType):
        return _writes(node.target)
    return node.target not in _READING_FUNCTIONS


_READING_FUNCTIONS = frozenset(
    {
        torch.nn.functional.embedding,
        torch.nn.functional.layer_norm,
        torch.nn.functional.one_hot,
        torch.nn.functional.softmax,
    }
)
_WRITING_BUILTINS = frozenset({torch.batch_norm, torch.instance_norm})
_WRITING_OPERATORS = frozenset(
    {
        operator.setitem,
        operator.delitem,
        operator.iadd,
        operator.iand,
        operator.iconcat,
        operator.ifloordiv,
        operator.ilshift,
        operator.imatmul,
        operator.imod,
        operator.imul,
        operator.ior,
        operator.ipow,
        operator.irshift,
        operator.isub,
        operator.itruediv,
        operator.ixor,
    }
)


def _writes(function: types.BuiltinFunctionType) -> bool:
    if function.__module__ == operator.add.__module__:
        return function in _WRITING_OPERATORS
    return function.__name__.endswith("_") or function in _WRITING_BUILTINS


_SPECIAL = frozenset(
    [
        *("add", "radd", "sub", "rsub", "mul", "rmul", "neg", "abs", "and", "or", "xor", "invert"),
        *("lt", "le", "eq", "ne", "gt", "ge", "iadd", "isub", "imul", "iand", "ior", "ixor"),
    ]
)
"""Operations that Python has a special method for."""


def _spellings(name: str) -> list[Any]:
    """Returns the ways in which a graph may call an operation: by method name or function."""
    functions = [getattr(owner, name, None) for owner in (operator, torch, torch.Tensor)]
    return [name, *(function for function in functions if callable(function))]


def _special_spellings(name: str) -> list[Any]:
    special = f"__{name}__"
    return [special, getattr(torch.Tensor, special)] if name in _SPECIAL else []


def _in_place_spellings(name: str) -> list[Any]:
    augmented = f"i{name.removeprefix('bitwise_')}"
    known = augmented in _SPECIAL
    return [
        *_spellings(f"{name}_"),
        *([getattr(operator, augmented)] if known else []),
        *_special_spellings(augmented),
    ]
