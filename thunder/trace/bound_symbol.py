"""A read view of a trace for inspection: what each node calls, with what, from which line."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from torch import fx
from torch.fx.node import map_aggregate

from thunder.trace.source_lines import SourceLine, source_line
from thunder.trace.targets import CLAIM, ClaimedOperator, FusedRegion


@dataclass(frozen=True, slots=True)
class Symbol:
    """What a node calls.

    Attributes:
        name: Such as `aten.mul.Tensor`, `inductorFusion0`, or a placeholder's name.
        is_fusion: Whether it is a fusion region.
        executor: Name of the executor that runs it; None for inputs and outputs.
    """

    name: str
    is_fusion: bool
    executor: str | None


@dataclass(frozen=True, slots=True)
class BoundSymbol:
    """A node of a trace.

    Attributes:
        node: The fx node.
        sym: What it calls.
        subsymbols: For a fusion its body, otherwise empty.
        flat_args: The values it takes, nested containers flattened: nodes and constants.
        flat_outs: The nodes that stand for its results.
        source_line: The user's line, or None.
    """

    node: fx.Node
    sym: Symbol
    subsymbols: tuple[BoundSymbol, ...]
    flat_args: tuple[Any, ...]
    flat_outs: tuple[fx.Node, ...]
    source_line: SourceLine | None

    def __str__(self) -> str:
        """Gives `outputs = name(arguments)`."""
        outputs = ", ".join(node.name for node in self.flat_outs)
        arguments = ", ".join(str(argument) for argument in self.flat_args)
        return f"{outputs} = {self.sym.name}({arguments})"


def bound_symbols(graph_module: fx.GraphModule) -> list[BoundSymbol]:
    """Returns the view of all nodes of a graph; a fusion's getitems are its outputs."""
    nodes = list(graph_module.graph.nodes)
    taken = {user for node in nodes if isinstance(node.target, FusedRegion) for user in node.users}
    return [_bind(node) for node in nodes if node not in taken]


def _bind(node: fx.Node) -> BoundSymbol:
    region = node.target if isinstance(node.target, FusedRegion) else None
    return BoundSymbol(
        node=node,
        sym=_symbol(node),
        subsymbols=tuple(bound_symbols(region.graph_module)) if region else (),
        flat_args=_flatten((node.args, node.kwargs)),
        flat_outs=tuple(node.users) if region else (node,),
        source_line=source_line(node),
    )


def _symbol(node: fx.Node) -> Symbol:
    claim = node.meta.get(CLAIM)
    match node.target:
        case FusedRegion() | ClaimedOperator() as target:
            return Symbol(target.name, isinstance(target, FusedRegion), target.executor)
        case str(name):
            return Symbol(name, is_fusion=False, executor=None)
        case target:
            name = str(target) if hasattr(target, "_schema") else getattr(target, "__name__", "")
            return Symbol(name, is_fusion=False, executor=claim.executor if claim else None)


def _flatten(arguments: Any) -> tuple[Any, ...]:
    flat: list[Any] = []
    map_aggregate(arguments, flat.append)
    return tuple(flat)
