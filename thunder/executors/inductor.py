"""The `inductor` executor: fusion by TorchInductor, on CPU and CUDA.

The one place that calls Inductor's compiler for an ATen graph. The passes that come before
(pre-grad, joint graph, partitioning into forward and backward) are `pipeline/aot.py`'s.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Sequence
from typing import Any, final

import torch
from torch import fx
from torch._guards import TracingContext
from torch._inductor.compile_fx import compile_fx_inner
from torch._inductor.utils import BoxedBool

from thunder.executors.base import AbstractFusionExecutor, Refusal, RegionContext
from thunder.executors.kernel_origins import region_of_its_own, with_origins
from thunder.trace.copying import output_values


@final
class InductorExecutor(AbstractFusionExecutor):
    """Takes every node; compiles a whole ATen graph exactly as `torch.compile` does."""

    @property
    def name(self) -> str:
        """`"inductor"`."""
        return "inductor"

    @property
    def version(self) -> str:
        """That of torch."""
        return str(torch.__version__)

    def check(self, node: fx.Node) -> Refusal | None:
        """Accepts every node: Inductor falls back to ATen by itself where it must."""
        del node
        return None

    def compile(
        self, graph_module: fx.GraphModule, example_inputs: Sequence[Any], context: RegionContext
    ) -> Callable[..., Sequence[Any]]:
        """Compiles a region; a part of a graph keeps the strides that were traced."""
        if context.whole_graph:
            with region_of_its_own():
                return compile_fx_inner(graph_module, example_inputs, **context.aot_arguments)
        _distinguish(graph_module)
        visible = list(range(len(output_values(graph_module.graph))))
        graph_module.graph.output_node().meta["user_visible_output_idxs"] = visible
        with _facts_of_the_whole_graph_set_aside(), region_of_its_own():
            return compile_fx_inner(
                graph_module,
                example_inputs,
                cudagraphs=BoxedBool(False),
                is_backward=context.direction == "backward",
                is_inference=context.direction == "inference",
            )

    def generated_code(self, compiled: Callable[..., Sequence[Any]]) -> str | None:
        """Returns Inductor's output code: the wrapper with the Triton or C++ kernels."""
        code = getattr(compiled, "source_code", None)
        return with_origins(compiled, code) if isinstance(code, str) and code else None


def _distinguish(graph_module: fx.GraphModule) -> None:
    """Gives a region code that no whole graph has.

    Inductor's cache goes by the code. It does not ask which inputs may be overwritten, and would
    give a region what it compiled for the backward graph of another program that reads the same.
    """
    first = next(iter(graph_module.graph.nodes))
    first.name = f"region_{first.name}"
    graph_module.recompile()


@contextlib.contextmanager
def _facts_of_the_whole_graph_set_aside() -> Iterator[None]:
    """Keeps Inductor from mixing up a region with the graph that it is a part of.

    The tracing context says which inputs of the backward graph may be overwritten, by position,
    and is told the strides of the graph's outputs. Neither is true of a region's.
    """
    context = TracingContext.try_get()
    if context is None:
        yield
        return
    metadata: Any = context.fw_metadata
    donated = None if metadata is None else metadata.bw_donated_idxs
    reported, context.output_strides = context.output_strides, None
    if metadata is not None:
        metadata.bw_donated_idxs = None
    try:
        yield
    finally:
        context.output_strides = reported
        if metadata is not None:
            metadata.bw_donated_idxs = donated
