"""Compiles one captured graph with thunder, outside Dynamo, for the reports on its segments."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import fx
from torch._guards import TracingContext, tracing
from torch._subclasses.fake_tensor import FakeTensor

from thunder.dynamo.compiler import ThunderCompiler
from thunder.dynamo.report.capture import CapturedGraph
from thunder.dynamo.report.example_inputs import make_example_inputs, surroundings_of
from thunder.dynamo.report.partition_inputs import record_partition_inputs
from thunder.dynamo.subgraph_info import SubgraphInfo
from thunder.executors.kernel_origins import recorded_origins
from thunder.pipeline import CompiledRegion
from thunder.repro import RecordedInputs
from thunder.trace.copying import copy_graph_module
from thunder.trace.trace import Direction


@dataclass(frozen=True, kw_only=True, slots=True)
class CompiledGraph:
    """A captured graph as thunder compiled it.

    Attributes:
        info: What became of it.
        inputs: For each partition's name, what it is called with.
    """

    info: SubgraphInfo
    inputs: Mapping[str, RecordedInputs]


def compile_captured(captured: CapturedGraph, options: Mapping[str, Any]) -> CompiledGraph:
    """Splits and compiles a captured graph as `thunderfx` would.

    Args:
        captured: The graph.
        options: Keywords of `ThunderCompiler`.

    Raises:
        OptionError: An option is unknown or has a value that is not accepted.
        Exception: What compiling raises, unless `on_failure="fallback"` is among the options.
    """
    compiler = ThunderCompiler(**{"on_failure": "raise", **options})
    graph_module = copy_graph_module(captured.graph_module)
    fakes = fake_inputs(graph_module)
    with surroundings_of(captured.inputs), recorded_origins():
        if fakes is None:
            compiler(graph_module, make_example_inputs(captured.inputs))
        else:
            with tracing_like_dynamo(fakes):
                compiler(graph_module, fakes)
        (info,) = compiler.subgraph_infos
        inputs = _partition_inputs(captured, info)
        for region in info.thunder_compiled_fns:
            _compile_backward(region, inputs[region.name])
    return CompiledGraph(info=info, inputs=inputs)


def fake_inputs(graph_module: fx.GraphModule) -> list[Any] | None:
    """Returns the fake values that Dynamo left on the placeholders, or None if one has none.

    Args:
        graph_module: The graph.
    """
    placeholders = graph_module.graph.find_nodes(op="placeholder")
    values = [node.meta.get("example_value") for node in placeholders]
    return values if all(map(_is_usable, values)) else None


@contextlib.contextmanager
def tracing_like_dynamo(fakes: Sequence[Any]) -> Iterator[None]:
    """Lets a graph be compiled with the sizes that Dynamo made symbolic.

    Args:
        fakes: The graph's fake inputs.
    """
    mode = next((value.fake_mode for value in fakes if isinstance(value, FakeTensor)), None)
    with contextlib.nullcontext() if mode is None else tracing(TracingContext(mode)):
        yield


def _is_usable(value: Any) -> bool:
    return isinstance(value, FakeTensor | torch.SymInt | int)


def _partition_inputs(captured: CapturedGraph, info: SubgraphInfo) -> dict[str, RecordedInputs]:
    names = list(info.submodule_to_compiled_functions)
    split = info.original_split_graph_module
    if len(names) < 2 and not any(node.op == "call_module" for node in split.graph.nodes):
        return dict.fromkeys(names, captured.inputs)
    return record_partition_inputs(split, make_example_inputs(captured.inputs))


def _compile_backward(region: CompiledRegion, inputs: RecordedInputs) -> None:
    """Runs a region once when its backward graph is compiled no earlier than that."""
    if region.traces(Direction.BACKWARD) or not region.traces(Direction.FORWARD):
        return
    with torch.random.fork_rng():
        outputs = region.run(*make_example_inputs(inputs))
        roots = [x for x in outputs if isinstance(x, torch.Tensor) and x.requires_grad]
        if roots:
            torch.autograd.backward(roots, [torch.ones_like(x) for x in roots])
