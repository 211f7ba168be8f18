"""What became of one Dynamo graph."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from torch import fx

from thunder.dynamo.split_reason import SplitReason
from thunder.pipeline.region import CompiledRegion
from thunder.transforms.attention_mask import MaskFinding


@dataclass(frozen=True, kw_only=True, slots=True)
class SubgraphInfo:
    """One Dynamo graph: as captured, as split, and as compiled.

    Attributes:
        original_graph_module: The graph as Dynamo gave it.
        original_split_graph_module: The graph cut into partitions, none compiled.
        split_graph_module: The same with compiled partitions in place; this is what runs.
        thunder_compiled_fns: The compiled thunder regions, in order.
        thunder_compiled_fns_example_inputs: For each of them, a fake value for each input.
        submodule_to_compiled_functions: For each partition's name, what runs it.
        split_reasons: Why nodes left the thunder regions; empty when none did.
        failed_regions: Regions that could not be compiled, so that the whole graph runs by
            Inductor or in eager mode; empty as a rule.
        mask_findings: What was found out about the mask of each attention; empty where masks
            were not looked at.
    """

    original_graph_module: fx.GraphModule
    original_split_graph_module: fx.GraphModule
    split_graph_module: fx.GraphModule
    thunder_compiled_fns: Sequence[CompiledRegion]
    thunder_compiled_fns_example_inputs: Sequence[Sequence[Any]]
    submodule_to_compiled_functions: Mapping[str, Callable[..., Any]]
    split_reasons: Sequence[SplitReason]
    failed_regions: Sequence[CompiledRegion] = ()
    mask_findings: Sequence[MaskFinding] = ()

    def __str__(self) -> str:
        """A readable summary: sizes, partitions, reasons, executors."""
        operators = _count(self.original_graph_module)
        partitions = len(self.submodule_to_compiled_functions)
        lines = [f"Dynamo graph with {operators} operators in {partitions} partition(s)"]
        for name, compiled in self.submodule_to_compiled_functions.items():
            lines.append(f"  {name}: {_describe(compiled)}")
        if self.split_reasons:
            lines.append("split because:")
            lines += [f"  {reason}" for reason in self.split_reasons]
        else:
            lines.append("nothing was split off")
        if self.mask_findings:
            lines.append("attention masks:")
            lines += [f"  {finding}" for finding in self.mask_findings]
        return "\n".join(lines)


def _count(graph_module: fx.GraphModule) -> int:
    calls = ("call_function", "call_method", "call_module")
    return sum(node.op in calls for node in graph_module.graph.nodes)


def _describe(compiled: Callable[..., Any]) -> str:
    if not isinstance(compiled, CompiledRegion):
        return "by Inductor, as torch.compile would"
    operators = _count(compiled.graph_module)
    fusions = [
        symbol.sym.name
        for trace in compiled.forward_traces()[-1:]
        for symbol in trace.bound_symbols
        if symbol.sym.is_fusion
    ]
    runs = f"forward in {', '.join(fusions)}" if fusions else "forward op by op"
    return f"thunder, {operators} operators, {runs}"
