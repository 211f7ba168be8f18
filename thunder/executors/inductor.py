"""The `inductor` executor: fusion by TorchInductor, on CPU and CUDA.

The one place that calls Inductor's compiler for an ATen graph. The passes that come before
(pre-grad, joint graph, partitioning into forward and backward) are `pipeline/aot.py`'s.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Sequence
from typing import Any, final

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
        visible = list(range(len(output_values(graph_module.graph))))
        graph_module.graph.output_node().meta["user_visible_output_idxs"] = visible
        with _strides_of_the_whole_graph_untouched(), region_of_its_own():
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


@contextlib.contextmanager
def _strides_of_the_whole_graph_untouched() -> Iterator[None]:
    """Keeps Inductor from reporting a region's output strides as those of the whole graph."""
    context = TracingContext.try_get()
    if context is None:
        yield
        return
    reported, context.output_strides = context.output_strides, None
    try:
        yield
    finally:
        context.output_strides = reported
