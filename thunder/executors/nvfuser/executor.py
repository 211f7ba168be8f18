"""The `nvfuser` executor: what the pipeline sees of this package."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from types import ModuleType
from typing import Any, final

import torch
from torch import fx

from thunder.environment import nvfuser_version
from thunder.executors.base import AbstractFusionExecutor, Refusal, RegionContext
from thunder.executors.nvfuser import library
from thunder.executors.nvfuser.checks import refusal_reason
from thunder.executors.nvfuser.lowering import Kind
from thunder.executors.nvfuser.operators import lowering_of
from thunder.executors.nvfuser.outputs import is_free
from thunder.executors.nvfuser.region import NvFuserRegion
from thunder.executors.nvfuser.source import FusionSource

MAX_INPUTS = 96
"""Input tensors of a region. Kernel arguments are limited, and each costs host time."""

MAX_NODES = 200
"""Nodes of a region. nvFuser's compile time can explode on long chains."""

_LIGHT = frozenset({Kind.COPY, Kind.FACTORY, Kind.SIZE, Kind.VIEW})


@final
class NvFuserExecutor(AbstractFusionExecutor):
    """Fuses pointwise operators, normalisations, reductions and what moves data between them.

    Example:
        >>> executor = NvFuserExecutor()
        >>> executor.name, executor.max_nodes
        ('nvfuser', 200)
    """

    max_inputs: int = MAX_INPUTS
    max_nodes: int = MAX_NODES

    def __init__(
        self,
        *,
        matmul: bool = False,
        inspect: bool = False,
        device_type: str = "cuda",
        library_module: ModuleType | None = None,
    ) -> None:
        """Makes the executor; nvFuser is imported when the first region is compiled.

        Args:
            matmul: Whether to take matrix products, which nvFuser hands on to ATen.
            inspect: Whether regions keep what they were last called with.
            device_type: Where tensors must be; another one than `"cuda"` is for tests.
            library_module: Stands in for `nvfuser_direct` in tests.
        """
        self.matmul = matmul
        self.inspect = inspect
        self._device_type = device_type
        self._library = library_module

    @property
    def name(self) -> str:
        """`"nvfuser"`."""
        return "nvfuser"

    @property
    def version(self) -> str:
        """That of nvFuser's distribution."""
        return nvfuser_version()

    @property
    def fusion_stem(self) -> str:
        """`"nv"`: fusions are called `nvFusion0`, `nvFusion1` and so on."""
        return "nv"

    def available(self) -> Refusal | None:
        """Says why nothing can be compiled here, or None when it can."""
        return library.available() if self._library is None else None

    def check(self, node: fx.Node) -> Refusal | None:
        """Accepts the nodes that have a translation, given their dtypes, sizes and devices."""
        missing = self.available()
        if missing is not None:
            return missing
        reason = refusal_reason(node, device_type=self._device_type, matmul=self.matmul)
        return None if reason is None else Refusal(reason)

    def worthwhile(self, nodes: Sequence[fx.Node]) -> Refusal | None:
        """Says whether a fusion of `nodes` can beat running them one by one.

        Args:
            nodes: The nodes of a region, all accepted by `check`.

        Returns:
            None when it can, otherwise why the region is not worth a fusion.
        """
        heavy = [node for node in nodes if not _is_light(node)]
        devices = {device for node in nodes for device in _devices(node)}
        if not heavy:
            return Refusal("a region of views, copies and constants leaves nothing to compute")
        if len(devices) > 1:
            return Refusal("the region spreads over several devices")
        if len(heavy) == 1 and _is_single_kernel(heavy[0]):
            return Refusal("a single operator runs as fast on its own")
        return None

    def compile(
        self, graph_module: fx.GraphModule, example_inputs: Sequence[Any], context: RegionContext
    ) -> Callable[..., Sequence[Any]]:
        """Translates a region; nvFuser compiles its kernels on the first call."""
        module = library.load() if self._library is None else self._library
        return NvFuserRegion(
            context.name, graph_module, example_inputs, module, inspect=self.inspect
        )

    def generated_code(self, compiled: Callable[..., Sequence[Any]]) -> str | None:
        """Returns a region's definition, scheduled IR and CUDA kernels as one text."""
        if not isinstance(compiled, NvFuserRegion):
            return None
        variant = compiled.variant
        parts = {
            "definition": compiled.source().definition,
            "scheduled IR": variant.scheduled_ir(),
            "CUDA": variant.kernels(),
        }
        return "\n".join(
            f"// ---- {compiled.name}: {title} ----\n{text}" for title, text in parts.items()
        )

    def fusion_source(self, compiled: Callable[..., Sequence[Any]]) -> FusionSource | None:
        """Returns the parts of a script that runs a region's fusion by itself."""
        return compiled.source() if isinstance(compiled, NvFuserRegion) else None


def _is_light(node: fx.Node) -> bool:
    if is_free(node) or node.op != "call_function":
        return True
    lowering = lowering_of(node)
    return lowering is None or lowering.kind in _LIGHT


def _is_single_kernel(node: fx.Node) -> bool:
    lowering = lowering_of(node)
    return lowering is not None and lowering.kind in (Kind.COMPUTE, Kind.MOVEMENT)


def _devices(node: fx.Node) -> set[torch.device]:
    value = node.meta.get("val")
    values = value if isinstance(value, tuple | list) else [value]
    return {tensor.device for tensor in values if isinstance(tensor, torch.Tensor)}
