"""What a compiled graph shows under the debug flags: traces, fusion regions, generated code."""

from __future__ import annotations

from collections.abc import Sequence

from thunder.debug import DebugFlag, GraphDump
from thunder.trace.printer import print_program
from thunder.trace.source_lines import source_line
from thunder.trace.targets import FusedRegion
from thunder.trace.trace import TraceCtx


def show_graph(dump: GraphDump, traces: Sequence[TraceCtx]) -> None:
    """Shows what became of one graph, as far as a debug flag or a log asks for it.

    Args:
        dump: Where the graph's artifacts go.
        traces: The stages; the last is executed.
    """
    executed = traces[-1]
    direction = executed.direction.value
    dump.artifact(DebugFlag.TRACE, executed.python, direction=direction)
    for region in fused_regions(executed):
        dump.artifact(
            DebugFlag.FUSION_REGION,
            lambda region=region: print_program(region.graph_module, name=region.name),
            direction=direction,
            part=region.name,
        )
        dump.artifact(
            DebugFlag.FUSION_CODE,
            lambda region=region: region.kernels() or f"# {region.executor} shows no code\n",
            direction=direction,
            part=region.name,
        )


def fused_regions(trace: TraceCtx) -> list[FusedRegion]:
    """Returns the fusion regions of an execution trace, in order."""
    targets = [node.target for node in trace.graph.nodes]
    return [target for target in targets if isinstance(target, FusedRegion)]


def profile_name(region: FusedRegion) -> str:
    """Returns what profiles show for a region: its name and the first user line in it."""
    lines = (source_line(node) for node in region.graph_module.graph.nodes)
    line = next((line for line in lines if line is not None), None)
    return f"{region.name} {line.file}:{line.line}" if line else region.name
