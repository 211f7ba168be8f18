"""What the parts of a graph are called with: real inputs of partitions and of fusion regions.

Both are found by running the graph once, eagerly or as compiled, on the graph's own inputs, and
looking at what passes by. Nothing is kept but records.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, final

import torch
from torch import fx

from thunder.dynamo.report.window_offsets import with_valid_offsets
from thunder.errors import BenchmarkError
from thunder.pipeline import CompiledRegion
from thunder.pipeline.aot import compile_op_by_op, compile_with_inductor_passes
from thunder.pipeline.artifacts import fused_regions
from thunder.pipeline.lowering import GraphRequest
from thunder.repro import RecordedInputs, record_inputs
from thunder.repro.inputs import Record, TensorRecord
from thunder.trace.copying import copy_graph_module
from thunder.trace.targets import FusedRegion
from thunder.trace.trace import Direction, TraceCtx


def record_partition_inputs(
    split: fx.GraphModule, inputs: Sequence[Any]
) -> dict[str, RecordedInputs]:
    """Runs a split graph eagerly and records the inputs of each partition.

    Args:
        split: Calls the partitions as submodules.
        inputs: The graph's inputs; they are written to where the program does.

    Returns:
        A record for each partition's name.
    """
    run = _PartitionRun(split)
    run.run(*inputs)
    return run.recorded


@final
class _PartitionRun(fx.Interpreter):
    """Records what submodules are called with."""

    def __init__(self, split: fx.GraphModule) -> None:
        super().__init__(split)
        self.extra_traceback = False
        self.recorded: dict[str, RecordedInputs] = {}

    def call_module(self, target: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Records the inputs and runs the partition."""
        partition = self.fetch_attr(target)
        graph = partition.graph if isinstance(partition, fx.GraphModule) else None
        self.recorded[target] = record_inputs(args, graph=graph)
        return super().call_module(target, args, kwargs)


def record_fusion_inputs(
    region: CompiledRegion,
    inputs: Sequence[Any],
    fake_inputs: Sequence[Any],
) -> dict[tuple[Direction, str], RecordedInputs]:
    """Runs a compiled region forward, and backward where it can, and records its fusions' inputs.

    AOTAutograd makes the ATen graphs once more, in the same way; in their place the execution
    traces run that were compiled before, so nothing is compiled again.

    Args:
        region: The region.
        inputs: Its inputs; they are written to where the program does.
        fake_inputs: The inputs that it was compiled for.

    Returns:
        A record for each fusion, by direction and name.

    Raises:
        BenchmarkError: The graphs came out differently this time.
    """
    recorded: dict[tuple[Direction, str], RecordedInputs] = {}

    def compile_graph(request: GraphRequest) -> Callable[[list[Any]], Sequence[Any]]:
        trace = _executed_trace(region, request.direction, request.graph_module)

        def run(values: list[Any]) -> Sequence[Any]:
            arguments = list(values)
            values.clear()
            return _run_trace(trace, arguments, recorded)

        run._boxed_call = True  # type: ignore[attr-defined] - torch's mark for one list
        return run

    captured = copy_graph_module(region.graph_module)
    if region.options.fuses:
        compiled = compile_with_inductor_passes(
            captured,
            fake_inputs,
            compile_graph,
            inductor_config=region.options.inductor_config,
            undecomposed=[op for e in region.options.executors for op in e.undecomposed_ops()],
        )
    else:
        compiled = compile_op_by_op(captured, fake_inputs, compile_graph)
    outputs = compiled(*inputs)
    roots = [x for x in outputs if isinstance(x, torch.Tensor) and x.requires_grad]
    leaves = [x for x in inputs if isinstance(x, torch.Tensor) and x.requires_grad]
    if roots and leaves:
        torch.autograd.grad(roots, leaves, [torch.ones_like(x) for x in roots], allow_unused=True)
    return recorded


def _executed_trace(region: CompiledRegion, direction: Direction, aten: fx.GraphModule) -> TraceCtx:
    traces = region.traces(direction)
    wanted = len(aten.graph.find_nodes(op="placeholder"))
    if not traces or len(traces[-1].graph.find_nodes(op="placeholder")) != wanted:
        raise BenchmarkError(
            f"{region.name}: the {direction.value} graph comes out differently when it is traced "
            "again, so the inputs of its fusions cannot be told"
        )
    return traces[-1]


def _run_trace(
    trace: TraceCtx, arguments: list[Any], recorded: dict[tuple[Direction, str], RecordedInputs]
) -> Sequence[Any]:
    """Runs an execution trace, or the one fusion that is all of it, and records fusions' inputs."""
    for fused in fused_regions(trace):
        if fused.whole_graph is not None:
            recorded[trace.direction, fused.name] = _fusion_inputs(fused, arguments)
            return fused.whole_graph(arguments)
    return _FusionRun(trace, recorded).run(*arguments)


def _fusion_inputs(fused: FusedRegion, arguments: Sequence[Any]) -> RecordedInputs:
    # Autograd's work is done: a fusion is a function of plain values.
    with torch.no_grad():
        values = [x.detach() if isinstance(x, torch.Tensor) else x for x in arguments]
        graph = fused.graph_module.graph
        return with_valid_offsets(record_inputs(values, graph=graph), graph)


def in_recorded_layout(fused: FusedRegion, inputs: RecordedInputs) -> FusedRegion:
    """Returns a region whose graph also runs where inputs have another layout than when traced.

    Inductor chooses layouts of what it saves for a backward graph after that was traced, and then
    takes views for reshapes. So it is done here; otherwise the region comes back as it is.

    Args:
        fused: The region.
        inputs: What it is called with.
    """
    traced = [
        node.meta.get("val") for node in fused.graph_module.graph.find_nodes(op="placeholder")
    ]
    if all(map(_is_laid_out_as, inputs.inputs, traced)):
        return fused
    graph_module = copy_graph_module(fused.graph_module)
    for node in graph_module.graph.find_nodes(
        op="call_function", target=torch.ops.aten.view.default
    ):
        node.target = torch.ops.aten.reshape.default
    graph_module.recompile()
    return replace(fused, graph_module=graph_module)


def _is_laid_out_as(record: Record, traced: Any) -> bool:
    if not isinstance(record, TensorRecord) or not isinstance(traced, torch.Tensor):
        return True
    strides = zip(record.shape, record.stride, traced.stride(), strict=False)
    return all(size == 1 or str(now) == str(then) for size, now, then in strides)


@final
class _FusionRun(fx.Interpreter):
    """Runs an execution trace and records what fusions are called with."""

    def __init__(
        self, trace: TraceCtx, recorded: dict[tuple[Direction, str], RecordedInputs]
    ) -> None:
        super().__init__(trace.graph_module)
        self.extra_traceback = False
        self.direction = trace.direction
        self.recorded = recorded

    def call_function(self, target: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Records the inputs of a fusion and runs it."""
        if isinstance(target, FusedRegion):
            self.recorded[self.direction, target.name] = _fusion_inputs(target, args)
        return super().call_function(target, args, kwargs)
