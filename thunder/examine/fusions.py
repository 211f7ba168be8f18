"""Queries about the fusion regions of a trace."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from thunder.trace.bound_symbol import BoundSymbol
from thunder.trace.targets import FusedRegion
from thunder.trace.trace import TraceCtx


def get_fusion_symbols(trace: TraceCtx) -> list[BoundSymbol]:
    """Returns the bound symbols of a trace's fusion regions, in the order in which they run.

    Args:
        trace: An execution trace, such as `thunder.last_traces(f)[-1]`.

    Example:
        >>> import torch, thunder
        >>> from thunder.examine import get_fusion_symbols
        >>> f = thunder.jit(lambda x: x.sin() + 1)
        >>> _ = f(torch.zeros(2))
        >>> [symbol.sym.name for symbol in get_fusion_symbols(thunder.last_traces(f)[-1])]
        ['inductorFusion0']
    """
    return [symbol for symbol in trace.bound_symbols if symbol.sym.is_fusion]


def get_fusions(trace: TraceCtx) -> list[tuple[str, Callable[..., Any]]]:
    """Returns the name and the compiled callable of each fusion region, in order.

    Args:
        trace: An execution trace.

    Returns:
        Pairs of name and callable. The callable is a `FusedRegion`: it takes the region's inputs
        positionally, and has the region's ATen graph (`graph_module`) and generated code
        (`kernels()`).
    """
    targets = [symbol.node.target for symbol in get_fusion_symbols(trace)]
    return [(target.name, target) for target in targets if isinstance(target, FusedRegion)]
