"""Where a mask that is not known comes from: a graph's inputs, or operations without a rule."""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import fx

from thunder.transforms.masks.bodies import body_call
from thunder.transforms.masks.forms import MaskForm
from thunder.transforms.masks.rules import operator_of

_MOST_NAMES = 3


def describe_origin(mask: fx.Node, root: fx.GraphModule) -> tuple[MaskForm, str]:
    """Says why nothing is known of a mask.

    Args:
        mask: The node that makes it.
        root: The graph that it is part of, or that calls the graph that it is part of.

    Returns:
        Whether it is data, learned, or not understood; and a sentence that names the inputs that
        it depends on, or the operations that have no rule.
    """
    nodes = _ancestors(mask, dict(_bindings(root)))
    example = mask.meta.get("example_value")
    inputs = [
        str(node.target)
        for node in nodes
        if node.op in ("placeholder", "get_attr")
        and isinstance(node.meta.get("example_value"), torch.Tensor)
    ]
    if isinstance(example, torch.Tensor) and example.requires_grad:
        return MaskForm.LEARNED, f"gradients flow into the mask, from {_listed(inputs)}"
    if inputs:
        return MaskForm.DATA, f"the mask depends on the values of {_listed(inputs)}"
    unknown = [
        _target(node) for node in nodes if node.op.startswith("call") and operator_of(node) is None
    ]
    if unknown:
        return MaskForm.UNKNOWN, f"no rule says what {_listed(unknown)} computes"
    return MaskForm.UNKNOWN, "the mask is written to, or computed in a way that no rule covers"


def _bindings(graph_module: fx.GraphModule) -> Iterator[tuple[fx.Node, fx.Node]]:
    """Yields each input of a body with what the first call of the body passes for it."""
    for node in graph_module.graph.nodes:
        call = body_call(node, graph_module)
        if call is not None:
            inputs = call.body.graph.find_nodes(op="placeholder")
            pairs = zip(inputs, call.operands, strict=True)
            yield from ((inside, outer) for inside, outer in pairs if isinstance(outer, fx.Node))
            yield from _bindings(call.body)


def _ancestors(node: fx.Node, bindings: dict[fx.Node, fx.Node]) -> list[fx.Node]:
    """Returns all that a node is computed from, the nearest first."""
    found: dict[fx.Node, None] = {}
    waiting = [node]
    for node in waiting:
        if node in bindings:
            waiting.append(bindings[node])
        elif node not in found:
            found[node] = None
            waiting.extend(node.all_input_nodes)
    return list(found)


def _listed(names: list[str]) -> str:
    distinct = list(dict.fromkeys(names))
    more = len(distinct) - _MOST_NAMES
    return ", ".join(distinct[:_MOST_NAMES]) + (f" and {more} more" if more > 0 else "")


def _target(node: fx.Node) -> str:
    return str(getattr(node.target, "__name__", node.target))
