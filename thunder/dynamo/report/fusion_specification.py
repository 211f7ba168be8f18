"""Ways to compile a fusion region by the executor that has it, in this process and in scripts."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, final

import torch
from torch import fx
from torch.fx.experimental.proxy_tensor import make_fx

from thunder.benchmark import AbstractCompileSpecification
from thunder.errors import BenchmarkError
from thunder.executors import AbstractFusionExecutor, RegionContext, get_executor
from thunder.executors.nvfuser.region import NvFuserRegion
from thunder.repro import CompileSource
from thunder.trace.copying import copy_graph_module, output_values

_REGION = "nvFusion0"


@final
@dataclass(frozen=True)
class FusionExecutorSpecification(AbstractCompileSpecification):
    """Compiles an ATen graph as one region of a fusion executor.

    Attributes:
        executor: The executor's name, such as `"nvfuser"`.
    """

    executor: str

    @property
    def name(self) -> str:  # pyright: ignore[reportIncompatibleVariableOverride] - read only
        """The executor's name."""
        return self.executor

    def compile(self, fn: Callable[..., Any], *, inputs: Sequence[Any]) -> Callable[..., Any]:
        """Compiles a graph module of ATen operators; other callables are traced to one first.

        Raises:
            BenchmarkError: The executor compiles no regions.
            ExecutorError: It cannot compile this one.
        """
        graph = fn if isinstance(fn, fx.GraphModule) else make_fx(fn)(*inputs)
        compiled = _compile_region(self.executor, graph, inputs)
        if getattr(compiled, "_boxed_call", False):
            return lambda *values: compiled(list(values))
        return compiled


def nvfuser_source(graph_module: fx.GraphModule, inputs: Sequence[Any]) -> CompileSource:
    """Returns source that defines and runs a region with nvFuser alone.

    Args:
        graph_module: The region's ATen graph.
        inputs: What it is called with, on the device.

    Raises:
        BenchmarkError: nvFuser is not there.
        ExecutorError: nvFuser cannot compile it.
    """
    region = _compile_region("nvfuser", graph_module, inputs)
    assert isinstance(region, NvFuserRegion)
    region(*inputs)  # with symbolic sizes the fusion is built in the first call
    source = region.source()
    values = output_values(graph_module.graph)
    wanted = [value.name for value in values if isinstance(value, fx.Node)]
    order = [source.outputs.index(name) for name in wanted if name in source.outputs]
    left = [name for name in wanted if name not in source.outputs]
    run = (
        "def run_with_nvfuser(*inputs):\n"
        f"    results = {source.execution}\n"
        f"    return [results[index] for index in {order}]"
    )
    return CompileSource(
        name="nvfuser",
        expression="run_with_nvfuser",
        imports=source.imports,
        definitions=(source.definition.rstrip(), source.construction.rstrip(), run),
        notes=tuple(f"{name} is not nvFuser's work and is left out here" for name in left),
    )


def _compile_region(
    name: str, graph_module: fx.GraphModule, inputs: Sequence[Any]
) -> Callable[..., Sequence[Any]]:
    executor = get_executor(name)
    if not isinstance(executor, AbstractFusionExecutor):
        raise BenchmarkError(f"the executor {name!r} compiles no regions")
    context = RegionContext(name=_REGION, direction="inference", whole_graph=False)
    with torch.no_grad():
        return executor.compile(copy_graph_module(graph_module), inputs, context)
