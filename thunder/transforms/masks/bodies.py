"""Higher-order operators that run a graph as it is: where the graph and its operands are."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, final

import torch
from torch import fx

_hop = torch.ops.higher_order
_BODIES: dict[Any, tuple[int, int]] = {
    _hop.invoke_subgraph: (0, 2),
    _hop.tag_activation_checkpoint: (0, 1),
    _hop.wrap: (0, 1),
    _hop.wrap_activation_checkpoint: (0, 1),
    _hop.wrap_with_autocast: (4, 5),
    _hop.wrap_with_set_grad_enabled: (1, 2),
}
"""For each operator, which argument is the body, and from which on they are its operands."""


@final
@dataclass(frozen=True, kw_only=True, slots=True)
class BodyCall:
    """A call of a graph by a higher-order operator.

    Attributes:
        body: The graph module.
        first: Which of the node's arguments is the body's first input.
        operands: The arguments that are the body's inputs.
    """

    body: fx.GraphModule
    first: int
    operands: tuple[Any, ...]


def body_call(node: fx.Node, graph_module: fx.GraphModule) -> BodyCall | None:
    """Returns the call of a body that a node makes, None when it makes none.

    Args:
        node: A node.
        graph_module: The graph module that the node is part of.

    Returns:
        None too for higher-order operators that do more than run their body once.
    """
    place = _BODIES.get(node.target) if node.op == "call_function" else None
    if place is None:
        return None
    at, first = place
    name = node.args[at] if at < len(node.args) else None
    if not isinstance(name, fx.Node) or name.op != "get_attr":
        return None
    body = getattr(graph_module, str(name.target), None)
    operands = node.args[first:]
    if not isinstance(body, fx.GraphModule):
        return None
    if len(body.graph.find_nodes(op="placeholder")) != len(operands):
        return None
    return BodyCall(body=body, first=first, operands=operands)
