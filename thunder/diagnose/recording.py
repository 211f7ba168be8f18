"""Compiles a function, but runs every graph in eager mode, and keeps what each was called with.

So each graph, forward and backward, can be judged by itself afterwards, on the inputs that eager
gives it: one wrong result does not make everything after it look wrong.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, final

import torch
from torch import fx, nn
from torch.utils._pytree import tree_leaves

from thunder.diagnose.examination import slope
from thunder.pipeline.aot import compile_op_by_op, compile_with_inductor_passes
from thunder.pipeline.judged_run import copy_values, random_state_kept
from thunder.pipeline.lowering import lower_graph
from thunder.pipeline.options import CompileOptions
from thunder.trace.copying import copy_graph_module
from thunder.trace.trace import Direction, Provenance, TraceCtx
from thunder.transforms.base import Stage
from thunder.transforms.pipeline import run_transforms


@dataclass(kw_only=True, slots=True)
class RecordedCall:
    """An ATen graph and what it was first called with.

    Attributes:
        traces: Its stages.
        inputs: The inputs; None when it was not called.
    """

    traces: tuple[TraceCtx, ...]
    inputs: list[Any] | None = None


@dataclass(kw_only=True, slots=True)
class RecordedGraph:
    """A Dynamo graph and what it was first called with.

    Attributes:
        traces: The graph as captured, and what transforms made of it.
        run: Runs its ATen graphs in eager mode, with autograd.
        inputs: The inputs; None when it was not called.
        calls: Its ATen graphs in the order of compiling: forward, then backward.
    """

    traces: tuple[TraceCtx, ...]
    run: Callable[..., Any]
    inputs: list[Any] | None = None
    calls: list[RecordedCall] = field(default_factory=list)


@final
class RecordingBackend:
    """A backend for torch.compile.

    Attributes:
        graphs: The Dynamo graphs, in the order of compiling.
    """

    def __init__(self, options: CompileOptions) -> None:
        """Starts with nothing recorded.

        Args:
            options: How graphs are lowered.
        """
        self.graphs: list[RecordedGraph] = []
        self._options = options

    def __call__(
        self, graph_module: fx.GraphModule, example_inputs: Sequence[Any], **ignored: Any
    ) -> Callable[..., Any]:
        """Compiles a graph.

        Args:
            graph_module: The graph from Dynamo; it is consumed.
            example_inputs: The inputs of the call that is being compiled.
            ignored: torch.compile's `mode` and `options`, which are in the options already.
        """
        captured = TraceCtx(
            graph_module=copy_graph_module(graph_module),
            direction=Direction.CAPTURED,
            provenance=Provenance("Dynamo", 0.0),
        )
        graph_module, changed = run_transforms(
            graph_module,
            self._options.transforms,
            stage=Stage.CAPTURED,
            direction=Direction.CAPTURED,
        )
        graph = RecordedGraph(traces=(captured, *changed), run=graph_module)
        graph.run = self._compile(graph, graph_module, example_inputs)
        self.graphs.append(graph)

        def run(*inputs: Any) -> Any:
            if graph.inputs is None:
                graph.inputs = copy_values(list(inputs))
            return graph.run(*inputs)

        return run

    def _compile(
        self, graph: RecordedGraph, graph_module: fx.GraphModule, example_inputs: Sequence[Any]
    ) -> Callable[..., Any]:
        def compile_graph(
            graph_module: fx.GraphModule,
            example_inputs: Sequence[Any],
            direction: Direction,
            aot_arguments: Mapping[str, Any],
        ) -> Callable[[list[Any]], Sequence[Any]]:
            lowered = lower_graph(
                graph_module, example_inputs, direction, aot_arguments, self._options
            )
            call = RecordedCall(traces=lowered.traces)
            graph.calls.append(call)
            return _eager_runner(call)

        if not self._options.fuses:
            return compile_op_by_op(graph_module, example_inputs, compile_graph)
        executors = self._options.executors
        return compile_with_inductor_passes(
            graph_module,
            example_inputs,
            compile_graph,
            inductor_config=self._options.inductor_config,
            undecomposed=[op for executor in executors for op in executor.undecomposed_ops()],
        )


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


def _eager_runner(call: RecordedCall) -> Callable[[list[Any]], Sequence[Any]]:
    eager = call.traces[0].python_callable()
    executed = call.traces[-1].python_callable()

    def run(inputs: list[Any]) -> Sequence[Any]:
        if call.inputs is None:
            call.inputs = copy_values(list(inputs))
        with random_state_kept():
            compiled = executed(*copy_values(list(inputs)))
        outputs = eager(*inputs)
        inputs.clear()
        # Later graphs were compiled for the strides that compiled code gives.
        return [_with_strides(*pair) for pair in zip(outputs, compiled, strict=True)]

    run._boxed_call = True  # type: ignore[attr-defined]  # torch's mark for one list
    return run


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
