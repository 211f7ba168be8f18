"""Compiles a function, but runs every graph in eager mode, and keeps what each was called with.

So each graph, forward and backward, can be judged by itself afterwards, on the inputs that eager
gives it: one wrong result does not make everything after it look wrong.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Any, final

import torch
from torch import fx, nn
from torch.utils._pytree import tree_leaves

from thunder.diagnose.examination import slope
from thunder.dynamo.partition_compile import PartitionCompiler, compile_partitions
from thunder.dynamo.splitter import split_graph
from thunder.dynamo.support import find_unsupported
from thunder.executors.registry import get_executor
from thunder.pipeline.aot import compile_op_by_op, compile_with_inductor_passes
from thunder.pipeline.judged_run import copy_values, random_state_kept
from thunder.pipeline.lowering import GraphRequest, lower_graph
from thunder.pipeline.options import CompileOptions
from thunder.trace.copying import copy_graph_module
from thunder.trace.trace import Direction, Provenance, TraceCtx
from thunder.transforms.base import Stage
from thunder.transforms.pipeline import run_transforms

CALLS = 8
"""So many calls of a graph are kept; each holds copies of all its inputs."""

_AOTAUTOGRAD = "AOTAutograd and the passes before it"
_SPLIT = "split"


@dataclass(kw_only=True, slots=True)
class RecordedCall:
    """An ATen graph and what it was called with.

    Attributes:
        traces: Its stages.
        inputs: The inputs of each call; empty when it was not called.
    """

    traces: tuple[TraceCtx, ...]
    inputs: list[list[Any]] = field(default_factory=list)


@dataclass(kw_only=True, slots=True)
class RecordedGraph:
    """A torch-level graph, or a partition of one, and what it was called with.

    Attributes:
        index: Which Dynamo graph it is (of).
        part: The partition, such as `thunder_0`; empty for a graph that was not split.
        options: How it is compiled.
        pass_name: What made `run` out of the last trace.
        traces: The graph as captured, and what transforms made of it.
        run: Runs in eager mode what was made of it, with autograd.
        inputs: The inputs of each call; empty when it was not called.
        calls: Its ATen graphs in the order of compiling: forward, then backward.
    """

    index: int
    part: str = ""
    options: CompileOptions
    pass_name: str = _AOTAUTOGRAD
    traces: tuple[TraceCtx, ...]
    run: Callable[..., Any]
    inputs: list[list[Any]] = field(default_factory=list)
    calls: list[RecordedCall] = field(default_factory=list)


@final
class RecordingBackend:
    """A backend for torch.compile.

    Attributes:
        graphs: The graphs in the order of compiling; of a split one, first the whole, then its
            partitions.
        is_recording: Whether calls are recorded; afterwards graphs are only run.
    """

    def __init__(self, options: CompileOptions) -> None:
        """Starts with nothing recorded.

        Args:
            options: How graphs are lowered.
        """
        self.graphs: list[RecordedGraph] = []
        self.is_recording = True
        self._options = options
        self._count = 0

    def __call__(
        self, graph_module: fx.GraphModule, example_inputs: Sequence[Any], **ignored: Any
    ) -> Callable[..., Any]:
        """Compiles a graph.

        Args:
            graph_module: The graph from Dynamo; it is consumed.
            example_inputs: The inputs of the call that is being compiled.
            ignored: torch.compile's `mode` and `options`, which are in the options already.
        """
        index, self._count = self._count, self._count + 1
        unsupported = find_unsupported(
            graph_module, self._options.exclude_ops, example_inputs=example_inputs
        )
        if not unsupported:
            return self._add(index, "", self._options, graph_module, example_inputs)
        split = split_graph(graph_module, unsupported)
        whole = RecordedGraph(
            index=index,
            options=self._options,
            pass_name=_SPLIT,
            traces=(_captured(graph_module),),
            run=copy_graph_module(split.split_graph_module),
        )
        self.graphs.append(whole)
        by_inductor = replace(
            self._options,
            executors=(get_executor("inductor"), get_executor("aten")),
            requested_executors=("inductor", "aten"),
            transforms=(),
        )

        def compile_with(options: CompileOptions) -> PartitionCompiler:
            return lambda part, module, inputs: self._add(index, part.name, options, module, inputs)

        compiled = compile_partitions(
            split,
            example_inputs,
            compile_thunder=compile_with(self._options),
            compile_inductor=compile_with(by_inductor),
        )
        return self._recorded(whole, compiled.graph_module)

    def _add(
        self,
        index: int,
        part: str,
        options: CompileOptions,
        graph_module: fx.GraphModule,
        example_inputs: Sequence[Any],
    ) -> Callable[..., Any]:
        captured = _captured(graph_module)
        graph_module, changed = run_transforms(
            graph_module,
            options.transforms,
            stage=Stage.CAPTURED,
            direction=Direction.CAPTURED,
        )
        graph = RecordedGraph(
            index=index, part=part, options=options, traces=(captured, *changed), run=graph_module
        )
        self.graphs.append(graph)
        graph.run = self._compile(graph, graph_module, example_inputs)
        return self._recorded(graph, graph.run)

    def _recorded(self, graph: RecordedGraph, run: Callable[..., Any]) -> Callable[..., Any]:
        def call(*inputs: Any) -> Any:
            if self.is_recording and len(graph.inputs) < CALLS:
                graph.inputs.append(copy_values(list(inputs)))
            return run(*inputs)

        return call

    def _compile(
        self, graph: RecordedGraph, graph_module: fx.GraphModule, example_inputs: Sequence[Any]
    ) -> Callable[..., Any]:
        def compile_graph(request: GraphRequest) -> Callable[[list[Any]], Sequence[Any]]:
            lowered = lower_graph(request, graph.options)
            call = RecordedCall(traces=lowered.traces)
            graph.calls.append(call)
            return self._eager_runner(call)

        if not graph.options.fuses:
            return compile_op_by_op(graph_module, example_inputs, compile_graph)
        executors = graph.options.executors
        return compile_with_inductor_passes(
            graph_module,
            example_inputs,
            compile_graph,
            inductor_config=graph.options.inductor_config,
            undecomposed=[op for executor in executors for op in executor.undecomposed_ops()],
        )

    def _eager_runner(self, call: RecordedCall) -> Callable[[list[Any]], Sequence[Any]]:
        eager = call.traces[0].python_callable()
        executed = call.traces[-1].python_callable()

        def run(inputs: list[Any]) -> Sequence[Any]:
            if self.is_recording and len(call.inputs) < CALLS:
                call.inputs.append(copy_values(list(inputs)))
            with random_state_kept():
                compiled = executed(*copy_values(list(inputs)))
            outputs = eager(*inputs)
            inputs.clear()
            # Later graphs were compiled for the strides that compiled code gives.
            return [_with_strides(*pair) for pair in zip(outputs, compiled, strict=True)]

        run._boxed_call = True  # type: ignore[attr-defined]  # torch's mark for one list
        return run


def record(function: Callable[..., Any], arguments: tuple[Any, Any]) -> None:
    """Calls a compiled function and differentiates its results, and undoes what that changed.

    Args:
        function: What was compiled with a `RecordingBackend`.
        arguments: Positional and keyword arguments; copies of them are used.
    """
    with random_state_kept(), _buffers_kept(function):
        args, kwargs = copy_values(arguments)
        outputs = function(*args, **kwargs)
        roots = [x for x in tree_leaves(outputs) if isinstance(x, torch.Tensor) and x.requires_grad]
        leaves = _leaves(roots)
        if leaves:
            slopes = [slope(root) for root in roots]
            torch.autograd.grad(roots, leaves, slopes, allow_unused=True)


def _captured(graph_module: fx.GraphModule) -> TraceCtx:
    return TraceCtx(
        graph_module=copy_graph_module(graph_module),
        direction=Direction.CAPTURED,
        provenance=Provenance("Dynamo", 0.0),
    )


def _with_strides(value: Any, like: Any) -> Any:
    if not (isinstance(value, torch.Tensor) and isinstance(like, torch.Tensor)):
        return value
    if value.layout is not torch.strided or value.shape != like.shape:
        return value
    if value.stride() == like.stride():
        return value
    same = torch.empty_strided(like.shape, like.stride(), dtype=value.dtype, device=value.device)
    return same.copy_(value)


def _leaves(roots: Sequence[torch.Tensor]) -> list[torch.Tensor]:
    """Returns the leaves of autograd that the roots depend on."""
    leaves: dict[int, torch.Tensor] = {}
    waiting = [root.grad_fn for root in roots if root.grad_fn is not None]
    seen = set(waiting)
    while waiting:
        function = waiting.pop()
        variable = getattr(function, "variable", None)
        if isinstance(variable, torch.Tensor):
            leaves[id(variable)] = variable
        for following, _ in function.next_functions:
            if following is not None and following not in seen:
                seen.add(following)
                waiting.append(following)
    return list(leaves.values())


@contextmanager
def _buffers_kept(function: Any) -> Iterator[None]:
    module = function if isinstance(function, nn.Module) else getattr(function, "__self__", None)
    buffers = list(module.buffers()) if isinstance(module, nn.Module) else []
    copies = [buffer.detach().clone() for buffer in buffers]
    try:
        yield
    finally:
        for buffer, copy in zip(buffers, copies, strict=True):
            buffer.detach().copy_(copy)
