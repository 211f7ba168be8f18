"""Stretches of a captured graph that must stay in one piece.

A cut would be wrong inside a functorch transformation (values are wrappers that live between two
markers), between `torch.autograd.grad` and what it differentiates, and around version counters
and streams. `crossing_changes` finds more, which depend on where the cuts are.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

import torch
from torch import fx
from torch._ops import HigherOrderOperator, OpOverload, OpOverloadPacket
from torch.fx.node import map_arg

from thunder.dynamo.splitting.ambient_state import find_torch_function, is_marker
from thunder.dynamo.splitting.node_values import value_of


@dataclass(frozen=True, slots=True)
class IndivisibleRegion:
    """A stretch of nodes.

    Attributes:
        first: Position of the first node in the graph.
        last: Position of the last.
        what: What it is, in words.
    """

    first: int
    last: int
    what: str


def indivisible_regions(graph: fx.Graph) -> list[IndivisibleRegion]:
    """Finds the stretches that must not be cut.

    Args:
        graph: A captured graph.

    Returns:
        The regions in order; those that overlap are joined.
    """
    position = {node: index for index, node in enumerate(graph.nodes)}
    found = [
        *_nested_transformations(graph, position),
        *_differentiated(graph, position),
        *_version_counters(graph, position),
        *_hooks(graph, position),
        *_streams(graph, position),
        *_unknown_state(graph, position),
    ]
    return join(found)


def join(regions: Iterable[IndivisibleRegion]) -> list[IndivisibleRegion]:
    """Joins regions that overlap.

    Args:
        regions: Regions in any order.
    """
    joined: list[IndivisibleRegion] = []
    for region in sorted(regions, key=lambda region: (region.first, -region.last)):
        if joined and region.first <= joined[-1].last:
            before = joined.pop()
            region = IndivisibleRegion(before.first, max(before.last, region.last), before.what)
        joined.append(region)
    return joined


def _nested_transformations(
    graph: fx.Graph, position: dict[fx.Node, int]
) -> Iterator[IndivisibleRegion]:
    depth, first, what = 0, 0, ""
    for node in graph.nodes:
        if node.target in _OPENING:
            if depth == 0:
                first, what = position[node], _OPENING[node.target]
            depth += 1
        elif node.target in _CLOSING and depth:
            depth -= 1
            if depth == 0:
                yield IndivisibleRegion(first, position[node], what)
    if depth:
        yield IndivisibleRegion(first, len(position) - 1, what)


def _differentiated(graph: fx.Graph, position: dict[fx.Node, int]) -> Iterator[IndivisibleRegion]:
    """From the first node that depends on what is differentiated by, to the derivative."""
    for node in graph.nodes:
        if node.target is not torch.autograd.grad:
            continue
        arguments = dict(zip(("outputs", "inputs"), node.args, strict=False)) | node.kwargs
        above = _reachable(_nodes_in(arguments.get("outputs")), lambda n: n.all_input_nodes)
        below = _reachable(_nodes_in(arguments.get("inputs")), lambda n: n.users)
        between = [position[each] for each in above & below if each.op != "placeholder"]
        yield IndivisibleRegion(
            min(between, default=position[node]), position[node], "a torch.autograd.grad call"
        )


def _version_counters(graph: fx.Graph, position: dict[fx.Node, int]) -> Iterator[IndivisibleRegion]:
    for node in graph.nodes:
        if _operator_name(node) == "prims::_unsafe_set_version_counter":
            versions = [position[each] for each in _nodes_in(node.args[1])]
            yield IndivisibleRegion(
                min(versions, default=position[node]), position[node], "a preserved version"
            )


def _hooks(graph: fx.Graph, position: dict[fx.Node, int]) -> Iterator[IndivisibleRegion]:
    """A hook sees the whole gradient only in the piece that makes its tensor."""
    for node in graph.nodes:
        is_operator = isinstance(node.target, HigherOrderOperator)
        name = node.target.__name__ if is_operator else node.target
        if name not in ("register_hook", "retain_grad"):
            continue
        tensor = node.args[0]
        assert isinstance(tensor, fx.Node)
        if tensor.op in ("placeholder", "get_attr"):
            last = max((position[user] for user in node.users), default=position[node])
            yield IndivisibleRegion(position[node], last, "a tensor with a hook")
        else:
            yield IndivisibleRegion(position[tensor], position[node], "a tensor with a hook")


def _streams(graph: fx.Graph, position: dict[fx.Node, int]) -> Iterator[IndivisibleRegion]:
    uses = [position[n] for n in graph.nodes if _operator_name(n).startswith("streams::")]
    if uses:
        yield IndivisibleRegion(uses[0], uses[-1], "work on several streams")


def _unknown_state(graph: fx.Graph, position: dict[fx.Node, int]) -> Iterator[IndivisibleRegion]:
    """A call without inputs, value or use can only be there for state that is not known here."""
    for node in graph.nodes:
        if node.op != "call_function" or node.all_input_nodes or node.users or is_marker(node):
            continue
        known = node.target in _OPENING or node.target in _CLOSING or node.target in _HARMLESS
        if not known and value_of(node) is None and not _operator_name(node):
            yield IndivisibleRegion(position[node], len(position) - 1, "a change of global state")


def _operator_name(node: fx.Node) -> str:
    if isinstance(node.target, OpOverloadPacket):
        return node.target._qualified_op_name
    return node.target._schema.name if isinstance(node.target, OpOverload) else ""


def _nodes_in(argument: Any) -> list[fx.Node]:
    found: list[fx.Node] = []
    map_arg(argument, found.append)
    return found


def _reachable(start: Iterable[fx.Node], follow: Any) -> set[fx.Node]:
    seen: set[fx.Node] = set()
    pending = list(start)
    while pending:
        node = pending.pop()
        if node not in seen:
            seen.add(node)
            pending.extend(follow(node))
    return seen


def _functions(paths: dict[str, str]) -> dict[Any, str]:
    found = {find_torch_function(path): what for path, what in paths.items()}
    return {function: what for function, what in found.items() if function is not None}


# From torch 2.10 to 2.13 these moved, one by one, from torch._C to torch._functorch.predispatch.
_OPENING = _functions(
    {
        "torch._functorch.predispatch._vmap_increment_nesting": "a vmap",
        "torch._C._functorch._vmap_increment_nesting": "a vmap",
        "torch._C._functorch._grad_increment_nesting": "a torch.func gradient",
        "torch._functorch.predispatch._jvp_increment_nesting": "a torch.func.jvp",
        "torch._C._functorch._jvp_increment_nesting": "a torch.func.jvp",
        "torch._functorch.predispatch._enter_dual_level": "forward-mode differentiation",
        "torch._C._enter_dual_level": "forward-mode differentiation",
        "torch._C._functorch.pop_dynamic_layer_stack": "a torch.func transformation",
    }
)
_CLOSING = _functions(
    {
        "torch._functorch.predispatch._vmap_decrement_nesting": "",
        "torch._C._functorch._vmap_decrement_nesting": "",
        "torch._C._functorch._grad_decrement_nesting": "",
        "torch._functorch.predispatch._jvp_decrement_nesting": "",
        "torch._C._functorch._jvp_decrement_nesting": "",
        "torch._functorch.predispatch._exit_dual_level": "",
        "torch._C._exit_dual_level": "",
        "torch._C._functorch.push_dynamic_layer_stack": "",
    }
)
_HARMLESS = _functions(
    {
        "torch._functorch.predispatch.lazy_load_decompositions": "",
        "torch._functorch.vmap.lazy_load_decompositions": "",
        "torch.autograd.forward_ad._maybe_load_decompositions": "",
    }
)
