"""Which nodes talk to the other ranks of a job.

What such a node did cannot be undone, and one rank alone must not do it again: the others would
take it for the next thing that they expect.
"""

from __future__ import annotations

import torch
import torch.distributed as dist
from torch import fx

from thunder.trace.targets import ClaimedOperator, FusedRegion

_NAMESPACES = frozenset(
    {
        "_c10d_functional",
        "_c10d_functional_autograd",
        "_dtensor",
        "c10d",
        "c10d_functional",
        "symm_mem",
    }
)


def communicates(node: fx.Node) -> bool:
    """Returns whether running a node exchanges data with other ranks, if there are any.

    Args:
        node: A node of an ATen graph or of an execution trace. A fused region does when anything
            in it does.

    Example:
        >>> import torch
        >>> graph = torch.fx.Graph()
        >>> x = graph.placeholder("x")
        >>> communicates(graph.call_function(torch.ops.aten.relu.default, (x,)))
        False
    """
    if not (dist.is_available() and dist.is_initialized() and dist.get_world_size() > 1):
        return False
    return _is_collective(node)


def _is_collective(node: fx.Node) -> bool:
    match node.target:
        case torch._ops.OpOverload():
            return node.target.namespace in _NAMESPACES
        case ClaimedOperator():
            return node.target.operator.namespace in _NAMESPACES
        case FusedRegion():
            return any(map(_is_collective, node.target.graph_module.graph.nodes))
        case _:
            return False
