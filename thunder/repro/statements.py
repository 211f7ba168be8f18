"""One node of a graph as statements of Python.

Dynamo's, AOTAutograd's and symbolically traced graphs alike. What whole graphs and modules look
like in a script is `module_source.py`'s job, and the odd cases are in `higher_order.py`.
"""

from __future__ import annotations

import operator
import types
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import fx
from torch.fx.graph import magic_methods

from thunder.repro.collecting import SourceCollector
from thunder.repro.operators import write_operator
from thunder.repro.values import define_bound_objects, write_value
from thunder.trace.literals import literal
from thunder.trace.syntax import attribute, call_arguments


@dataclass(frozen=True, kw_only=True, slots=True)
class GraphContext:
    """What a statement may need to know of the graph around it.

    Attributes:
        graph_module: The module that holds the graph.
        collector: Gets imports, definitions and gaps.
        class_names: Names of the classes of nested graph modules, by the modules' identities.
        extra_classes: Classes that statements ask for, by name; they stand after the others.
    """

    graph_module: torch.nn.Module
    collector: SourceCollector
    class_names: dict[int, str]
    extra_classes: dict[str, str] = field(default_factory=dict)

    def argument(self, value: Any) -> str:
        """Returns an argument of a node as an expression."""
        if isinstance(value, torch._ops.OpOverload | torch._ops.OpOverloadPacket):
            return write_operator(value, self.collector)
        if not isinstance(value, fx.Node | list | tuple | dict | slice):
            return self._value(value)
        expression = literal(value, self.collector.names)
        define_bound_objects(self.collector)
        return expression

    def _value(self, value: Any) -> str:
        known = len(self.collector.gaps)
        written = write_value(value, self.collector)
        if written != "None" or len(self.collector.gaps) == known:
            return written
        name = self.collector.names.bind("unknown", value)
        gap = self.collector.gaps[-1]
        self.collector.define(name, f"{name} = None  # FILL IN: {gap}")
        return name

    def arguments(self, args: Sequence[Any], kwargs: dict[str, Any]) -> str:
        """Returns what stands between the parentheses of a call."""
        written = [self.argument(value) for value in args]
        return call_arguments(written, {key: self.argument(value) for key, value in kwargs.items()})


def statements(node: fx.Node, context: GraphContext) -> list[str]:
    """Returns the statements for an ordinary node, which give its name to its value.

    Args:
        node: Any node but placeholders and outputs.
        context: The graph around it.
    """
    if node.target is operator.setitem:
        owner, index, value = node.args
        written = f"{context.argument(owner)}[{_index(index, context)}]"
        return [f"{node.name} = None", f"{written} = {context.argument(value)}"]
    return [f"{node.name} = {expression(node, context)}"]


def expression(node: fx.Node, context: GraphContext) -> str:
    """Returns what a node computes, as an expression.

    Args:
        node: Any node but placeholders and outputs.
        context: The graph around it.
    """
    match node.op:
        case "get_attr":
            return attribute("self", str(node.target))
        case "call_module":
            called = attribute("self", str(node.target))
        case "call_method":
            owner, *rest = node.args
            called = attribute(context.argument(owner), str(node.target))
            return f"{called}({context.arguments(rest, node.kwargs)})"
        case _:
            return _function_call(node, context)
    return f"{called}({context.arguments(node.args, node.kwargs)})"


def _function_call(node: fx.Node, context: GraphContext) -> str:
    target = node.target
    if target is operator.getitem and len(node.args) == 2:
        return f"{context.argument(node.args[0])}[{_index(node.args[1], context)}]"
    if target is getattr and len(node.args) == 2 and isinstance(node.args[1], str):
        return attribute(context.argument(node.args[0]), node.args[1])
    infix = _infix(node, context)
    if infix is not None:
        return infix
    called = context.argument(target)
    return f"{called}({context.arguments(node.args, node.kwargs)})"


def _index(index: Any, context: GraphContext) -> str:
    """Writes what stands between brackets."""
    match index:
        case slice():
            parts = [index.start, index.stop, *([] if index.step is None else [index.step])]
            return ":".join("" if part is None else context.argument(part) for part in parts)
        case types.EllipsisType():
            return "..."
        case tuple() if index:
            inner = ", ".join(_index(part, context) for part in index)
            return f"{inner}," if len(index) == 1 else inner
    return context.argument(index)


def _infix(node: fx.Node, context: GraphContext) -> str | None:
    """Writes `a + b`, where that means what the call means."""
    name = getattr(node.target, "__name__", "")
    is_operator = getattr(operator, name, None) is node.target
    if not is_operator or node.kwargs or name not in magic_methods:
        return None
    if not all(_stands_alone(argument) for argument in node.args):
        return None
    return magic_methods[name].format(*(context.argument(argument) for argument in node.args))


def _stands_alone(argument: Any) -> bool:
    """Whether an operand needs no parentheses around it."""
    if type(argument) in (int, float):
        return str(argument)[0].isdigit()
    return isinstance(argument, fx.Node)
