"""Which operators a graph calls, and how often: functions, methods and modules alike."""

from __future__ import annotations

import operator
from collections import Counter
from typing import Any

from torch import fx

_CALLS = ("call_function", "call_method", "call_module")


def count_operators(graph_module: fx.GraphModule) -> dict[str, int]:
    """Counts the calls in a graph, those in the bodies of higher-order operators included.

    Taking an element out of a tuple is no operator.

    Args:
        graph_module: A captured or an ATen graph.

    Returns:
        Name to number of calls, the most frequent first, then by name. Methods are written as in
        `Tensor.exp`, functions as in `torch.sin` or `aten.sin.default`.

    Example:
        >>> import torch
        >>> count_operators(torch.fx.symbolic_trace(lambda x: torch.sin(x.exp()).exp()))
        {'Tensor.exp': 2, 'torch.sin': 1}
    """
    counts: Counter[str] = Counter()
    for module in graph_module.modules():
        if isinstance(module, fx.GraphModule):
            counts.update(_name(node, module) for node in module.graph.nodes if _is_call(node))
    return dict(sorted(counts.items(), key=lambda item: (-item[1], item[0])))


def _is_call(node: fx.Node) -> bool:
    return node.op in _CALLS and node.target is not operator.getitem


def _name(node: fx.Node, owner: fx.GraphModule) -> str:
    target: Any = node.target
    if node.op == "call_method":
        return f"Tensor.{target}"
    if node.op == "call_module":
        return type(owner.get_submodule(target)).__name__
    if hasattr(target, "_schema"):  # an ATen operator: prints as aten.sin.default
        return str(target)
    name = getattr(target, "__name__", type(target).__name__)
    module = getattr(target, "__module__", None) or ""
    if module in ("_operator", "builtins", "math"):
        return f"{module.lstrip('_')}.{name}"
    if module.partition(".")[0] == "torch" or not module:
        return f"torch.{name}"
    return f"{module}.{name}"
