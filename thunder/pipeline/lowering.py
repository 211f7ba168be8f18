"""From one ATen graph to its execution trace and callable.

Transforms, then executors claim nodes, then regions are compiled, then code is generated. Each
step leaves a trace.
"""

from __future__ import annotations

import operator
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from torch import fx
from torch._inductor import config as inductor_config
from torch._ops import OpOverload

from thunder.debug import recorded
from thunder.errors import ExecutorError
from thunder.executors.base import (
    AbstractExecutor,
    AbstractFusionExecutor,
    OperatorExecutor,
    RegionContext,
)
from thunder.executors.partition import Partition, Region, claim_nodes, partition_graph
from thunder.pipeline.artifacts import fused_regions, profile_name
from thunder.pipeline.options import CompileOptions
from thunder.trace.copying import copy_graph_module, make_graph_module, output_values
from thunder.trace.targets import ClaimedOperator, FusedRegion
from thunder.trace.trace import Direction, Provenance, TraceCtx
from thunder.transforms.base import Stage
from thunder.transforms.pipeline import DEFAULT_TRANSFORMS, run_transforms


@dataclass(frozen=True, slots=True)
class LoweredGraph:
    """An ATen graph, ready to run.

    Attributes:
        traces: One for each stage; the last is executed.
        run: Takes one list of inputs, which it may clear.
        is_whole_graph: Whether one fusion region is everything.
    """

    traces: tuple[TraceCtx, ...]
    run: Callable[[list[Any]], Sequence[Any]]
    is_whole_graph: bool

    def with_note(self, note: str) -> LoweredGraph:
        """Returns a copy whose last two traces, the executors' work, say `note` at their top."""
        noted = [replace(trace, notes=(*trace.notes, note)) for trace in self.traces[-2:]]
        return replace(self, traces=(*self.traces[:-2], *noted))

    def recorded_run(self) -> Callable[[list[Any]], Sequence[Any]]:
        """Returns `run` in the form for every day: profiles show a region by its name."""
        regions = fused_regions(self.traces[-1])
        if len(regions) == 1 and self.is_whole_graph:
            return recorded(self.run, profile_name(regions[0]))
        return self.run


@dataclass(frozen=True, kw_only=True, slots=True)
class GraphRequest:
    """An ATen graph to lower.

    Attributes:
        graph_module: The graph from AOTAutograd; it is consumed.
        example_inputs: One fake value for each placeholder.
        direction: Which way it runs.
        aot_arguments: What AOTAutograd's caller handed over with it.
        donated: See `TraceCtx.donated`.
    """

    graph_module: fx.GraphModule
    example_inputs: Sequence[Any]
    direction: Direction
    aot_arguments: Mapping[str, Any]
    donated: frozenset[int] = frozenset()

    def copy(self) -> GraphRequest:
        """Returns a request that can be lowered while this one is kept."""
        return replace(self, graph_module=copy_graph_module(self.graph_module))


def lower_graph(request: GraphRequest, options: CompileOptions) -> LoweredGraph:
    """Lowers one ATen graph.

    Inductor's settings hold meanwhile: AOTAutograd's caller has set them while it compiles, but a
    graph may also be lowered at its first run, after a failure or in a contest.

    Args:
        request: The graph; it is consumed.
        options: The user's options.

    Raises:
        TransformError: A transform failed.
        ExecutorError: An executor failed; names it, the region and the cause.
    """
    with inductor_config.patch(dict(options.inductor_config)):
        return _lower_graph(request, options)


def _lower_graph(request: GraphRequest, options: CompileOptions) -> LoweredGraph:
    graph_module, direction = request.graph_module, request.direction
    traces = [
        TraceCtx(
            graph_module=copy_graph_module(graph_module),
            direction=direction,
            provenance=Provenance("AOTAutograd", 0.0),
        )
    ]
    graph_module, changed = run_transforms(
        graph_module,
        (*options.transforms, *(() if options.fuses else DEFAULT_TRANSFORMS)),
        stage=Stage.ATEN,
        direction=direction,
    )
    traces += changed
    started = time.perf_counter()
    source = copy_graph_module(graph_module)  # executors change the graph that they compile
    claims = claim_nodes(source.graph, options.executors)
    partition = partition_graph(source.graph, claims, options.executors[-1])
    builder = _ExecutionGraph(source, direction, request.aot_arguments, claims)
    run = None
    if partition.whole_graph is not None:
        run = builder.add_whole_graph(partition.whole_graph, graph_module, request.example_inputs)
    else:
        builder.add_steps(partition)
    fused = TraceCtx(
        graph_module=make_graph_module(source, builder.graph),
        direction=direction,
        provenance=Provenance("fusion", (time.perf_counter() - started) * 1e3),
    )
    started = time.perf_counter()
    executed = replace(fused, frees=True)
    run = run or executed.boxed_callable()
    milliseconds = (time.perf_counter() - started) * 1e3
    executed = replace(executed, provenance=Provenance("delete after last use", milliseconds))
    traces = [replace(trace, donated=request.donated) for trace in (*traces, fused, executed)]
    return LoweredGraph(tuple(traces), run, partition.whole_graph is not None)


class _ExecutionGraph:
    """Builds the graph of an execution trace, compiling regions as they are added."""

    def __init__(
        self,
        graph_module: fx.GraphModule,
        direction: Direction,
        aot_arguments: Mapping[str, Any],
        claims: Mapping[fx.Node, AbstractExecutor],
    ) -> None:
        self.source = graph_module
        self.direction = direction
        self.aot_arguments = aot_arguments
        self.graph = fx.Graph()
        self.counts: Counter[str] = Counter()
        self.values: dict[fx.Node, fx.Node] = {}
        self.claims = claims
        for node in graph_module.graph.find_nodes(op="placeholder"):
            self.values[node] = self._copy(node)

    def add_steps(self, partition: Partition) -> None:
        """Adds all steps and the output."""
        for step in partition.steps:
            if isinstance(step, Region):
                self._add_region(step)
            else:
                self._add_node(step)
        self._add_output()

    def add_whole_graph(
        self, region: Region, graph_module: fx.GraphModule, example_inputs: Sequence[Any]
    ) -> Callable[[list[Any]], Sequence[Any]]:
        """Adds a region that is everything; returns the executor's callable as it is."""
        inputs = list(self.values)
        outputs = _outputs(region)
        body = _extract(self.source, region, inputs, outputs)
        name = self._name(region.executor)
        compiled = self._compile(region, name, graph_module, example_inputs, whole_graph=True)
        results = output_values(self.source.graph)
        positions = [results.index(output) for output in outputs]

        def select(*values: Any) -> list[Any]:
            everything = _call(compiled, values)
            return [everything[position] for position in positions]

        boxed = getattr(compiled, "_boxed_call", False)
        run = compiled if boxed else lambda args: compiled(*args)
        fused = FusedRegion(
            name=name,
            executor=region.executor.name,
            graph_module=body,
            compiled=select,
            kernels=lambda: region.executor.generated_code(compiled),
            whole_graph=run,
        )
        self._add_call(fused, inputs, outputs)
        self._add_output()
        return run

    def _add_region(self, region: Region) -> None:
        members = set(region.nodes)
        inputs = _inputs(region, members)
        outputs = _outputs(region)
        body = _extract(self.source, region, inputs, outputs)
        name = self._name(region.executor)
        examples = [node.meta.get("val") for node in inputs]
        compiled = self._compile(region, name, copy_graph_module(body), examples)
        fused = FusedRegion(
            name=name,
            executor=region.executor.name,
            graph_module=body,
            compiled=_positional(compiled),
            kernels=lambda: region.executor.generated_code(compiled),
        )
        shown = replace(fused, compiled=recorded(fused.compiled, profile_name(fused)))
        self._add_call(shown, inputs, outputs)

    def _compile(
        self,
        region: Region,
        name: str,
        graph_module: fx.GraphModule,
        example_inputs: Sequence[Any],
        *,
        whole_graph: bool = False,
    ) -> Callable[..., Sequence[Any]]:
        context = RegionContext(
            name=name,
            direction=self.direction.value,
            whole_graph=whole_graph,
            aot_arguments=self.aot_arguments,
        )
        try:
            return region.executor.compile(graph_module, example_inputs, context)
        except Exception as error:
            raise ExecutorError(
                f"executor {region.executor.name!r} failed to compile {name} of the "
                f"{self.direction.value} graph ({len(region.nodes)} nodes): "
                f"{type(error).__name__}: {error}"
            ) from error

    def _add_call(
        self, fused: FusedRegion, inputs: Sequence[fx.Node], outputs: Sequence[fx.Node]
    ) -> None:
        arguments = tuple(self.values[node] for node in inputs)
        call = self.graph.create_node(
            "call_function", fused, arguments, name=f"{fused.name}_outputs"
        )
        call.meta["val"] = tuple(output.meta.get("val") for output in outputs)
        for index, output in enumerate(outputs):
            value = self.graph.create_node(
                "call_function", operator.getitem, (call, index), name=output.name
            )
            value.meta.update(output.meta)
            self.values[output] = value

    def _add_node(self, node: fx.Node) -> None:
        copied = self._copy(node)
        executor = self.claims.get(node)
        if isinstance(executor, OperatorExecutor):
            assert isinstance(node.target, OpOverload)
            copied.target = ClaimedOperator(
                name=f"{executor.name}_{node.target.__name__.partition('.')[0]}",
                executor=executor.name,
                operator=node.target,
                implementation=executor.implementation(node),
            )
        self.values[node] = copied

    def _add_output(self) -> None:
        self._copy(self.source.graph.output_node())

    def _copy(self, node: fx.Node) -> fx.Node:
        copied = self.graph.node_copy(node, lambda source: self.values[source])
        copied.name = node.name
        return copied

    def _name(self, executor: AbstractFusionExecutor) -> str:
        stem = executor.fusion_stem
        self.counts[stem] += 1
        return f"{stem}Fusion{self.counts[stem] - 1}"


def _inputs(region: Region, members: set[fx.Node]) -> list[fx.Node]:
    inputs: dict[fx.Node, None] = {}
    for node in region.nodes:
        for source in node.all_input_nodes:
            if source not in members:
                inputs[source] = None
    return list(inputs)


def _outputs(region: Region) -> list[fx.Node]:
    members = set(region.nodes)
    return [
        node
        for node in region.nodes
        if node.op != "get_attr" and any(user not in members for user in node.users)
    ]


def _extract(
    source: fx.GraphModule,
    region: Region,
    inputs: Sequence[fx.Node],
    outputs: Sequence[fx.Node],
) -> fx.GraphModule:
    """Copies a region's nodes into a graph module of their own."""
    graph = fx.Graph()
    values: dict[fx.Node, fx.Node] = {}
    for node in inputs:
        values[node] = graph.create_node("placeholder", node.name, name=node.name)
        values[node].meta.update(node.meta)
    for node in region.nodes:
        if node not in values:
            values[node] = graph.node_copy(node, lambda name: values[name])
            values[node].name = node.name
    graph.output(tuple(values[node] for node in outputs))
    return copy_graph_module(make_graph_module(source, graph))


def _call(compiled: Callable[..., Sequence[Any]], values: Sequence[Any]) -> Sequence[Any]:
    if getattr(compiled, "_boxed_call", False):
        return compiled(list(values))
    return compiled(*values)


def _positional(compiled: Callable[..., Sequence[Any]]) -> Callable[..., Sequence[Any]]:
    if not getattr(compiled, "_boxed_call", False):
        return compiled
    return lambda *values: compiled(list(values))
