"""A compiled region: the callable that runs on every call of the user's function.

A region holds one nvFuser fusion for each memory layout that its inputs turn out to have, which
is one in nearly every program. A fusion's first run compiles kernels; from then on a call costs
a comparison of strides and nvFuser's own lookup.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from types import ModuleType
from typing import Any, final

import torch
from torch import fx

from thunder.errors import ExecutorError
from thunder.executors.nvfuser.build import build
from thunder.executors.nvfuser.descriptors import describe_layout
from thunder.executors.nvfuser.outputs import plan_outputs
from thunder.executors.nvfuser.sizes import all_concrete, concrete
from thunder.executors.nvfuser.source import FusionSource, fusion_source
from thunder.executors.nvfuser.translate import InputLayout, translate
from thunder.executors.nvfuser.variant import Variant

MAX_KEYS = 1024
"""How many input layouts a region with symbolic sizes remembers before it starts anew."""


@dataclass(frozen=True, kw_only=True, slots=True)
class InputRecord:
    """What inspection keeps of an input tensor.

    Attributes:
        shape: Sizes.
        stride: Strides, in elements.
        dtype: Element type.
        device: Where it is.
        storage_offset: Where in its storage it starts, in elements.
    """

    shape: tuple[int, ...]
    stride: tuple[int, ...]
    dtype: torch.dtype
    device: torch.device
    storage_offset: int


@final
class NvFuserRegion:
    """A region of an ATen graph, run by nvFuser.

    Attributes:
        name: The region's name, such as `nvFusion0`.
        graph_module: The region's graph, for reference runs and reproducers.
        inspect: Whether to keep `last_inputs`; may be switched at any time.
        last_inputs: With inspection on, what the last call was given; numbers as they are.
    """

    def __init__(
        self,
        name: str,
        graph_module: fx.GraphModule,
        example_inputs: Sequence[Any],
        library: ModuleType,
        *,
        inspect: bool = False,
    ) -> None:
        """Translates the region; with symbolic sizes, only on the first call.

        Args:
            name: The region's name.
            graph_module: Its graph.
            example_inputs: One fake tensor, SymInt or number for each placeholder.
            library: `nvfuser_direct`, or what behaves like it.
            inspect: Whether to keep `last_inputs`.

        Raises:
            ExecutorError: The region cannot be translated, or nvFuser refuses it.
        """
        self.name = name
        self.graph_module = graph_module
        self.inspect = inspect
        self.last_inputs: tuple[InputRecord | Any, ...] | None = None
        self._library = library
        self._plan = plan_outputs(graph_module.graph)
        if not self._plan.fused:
            raise ExecutorError(f"{name} has nothing for nvFuser to compute")
        self._finish: Callable[..., Sequence[Any]] | None = self._plan.finish()
        self._placeholders = graph_module.graph.find_nodes(op="placeholder")
        self._by_layout: dict[tuple[Any, ...], Variant] = {}
        self._by_key: dict[tuple[Any, ...], Variant] = {}
        self._last_key: tuple[Any, ...] | None = None
        self._last: Variant | None = None
        self._is_static = all(map(_is_static, example_inputs))
        if self._is_static:
            self._choose(self._key(example_inputs), example_inputs)

    def __call__(self, *args: Any) -> Sequence[Any]:
        """Runs the region.

        Args:
            *args: The values of the placeholders.

        Returns:
            The values that the region's graph returns.
        """
        key = self._key(args)
        variant = self._last
        if variant is None or key != self._last_key:
            variant = self._choose(key, args)
        if self.inspect:
            self.last_inputs = tuple(map(_record, args))
        outputs = variant(args)
        return outputs if self._finish is None else self._finish(*args, *outputs)

    @property
    def variants(self) -> tuple[Variant, ...]:
        """The fusions built so far, one for each layout of the inputs."""
        return tuple(self._by_layout.values())

    @property
    def variant(self) -> Variant:
        """The fusion that ran last, or will run first.

        Raises:
            ExecutorError: The region has symbolic sizes and was not called yet.
        """
        if self._last is None:
            raise ExecutorError(
                f"{self.name} has symbolic sizes and is translated when first called; call it"
            )
        return self._last

    def source(self) -> FusionSource:
        """Returns the fusion that ran last as parts of a script."""
        return fusion_source(
            self.variant.definition,
            outputs=tuple(node.name for node in self._plan.fused),
            device_index=self.variant.device_index,
        )

    def _key(self, args: Sequence[Any]) -> tuple[Any, ...]:
        if self._is_static:
            return tuple([arg.stride() for arg in args])
        return tuple(
            [(arg.stride(), arg.shape) if isinstance(arg, torch.Tensor) else None for arg in args]
        )

    def _choose(self, key: tuple[Any, ...], args: Sequence[Any]) -> Variant:
        variant = self._by_key.get(key)
        if variant is None:
            if len(self._by_key) >= MAX_KEYS:
                self._by_key.clear()
            variant = self._by_key[key] = self._for_layout(args)
        self._last_key, self._last = key, variant
        return variant

    def _for_layout(self, args: Sequence[Any]) -> Variant:
        layouts = [_layout(arg) for arg in args]
        key = tuple(map(_descriptor, self._placeholders, layouts))
        if key not in self._by_layout:
            self._by_layout[key] = self._build(layouts)
        return self._by_layout[key]

    def _build(self, layouts: Sequence[InputLayout | None]) -> Variant:
        definition = translate(self.graph_module.graph, self._plan.fused, layouts)
        fakes = [node.meta["val"] for node in self._plan.fused]
        return Variant(
            definition,
            build(definition, self._library),
            layouts=layouts,
            strides=[_known_strides(fake) for fake in fakes],
            device_index=fakes[0].device.index,
        )


def _is_static(value: Any) -> bool:
    if not isinstance(value, torch.Tensor):
        return False
    return all_concrete(value.shape) and all_concrete(value.stride())


def _layout(value: Any) -> InputLayout | None:
    if not isinstance(value, torch.Tensor):
        return None
    return InputLayout(tuple(value.shape), tuple(value.stride()))


def _descriptor(placeholder: fx.Node, layout: InputLayout | None) -> tuple[Any, ...] | None:
    """Returns what of an input's layout the fusion depends on."""
    if layout is None:
        return None
    sizes = [concrete(size) for size in placeholder.meta["val"].shape]
    pairs = zip(sizes, layout.sizes, strict=True)
    ones = tuple(size is None and actual == 1 for size, actual in pairs)
    described = describe_layout(layout.sizes, layout.strides)
    return described.contiguity, described.stride_order, ones


def _known_strides(fake: torch.Tensor) -> tuple[int, ...] | None:
    strides = fake.stride()
    return tuple(strides) if all_concrete((*fake.shape, *strides)) else None


def _record(value: Any) -> InputRecord | Any:
    if not isinstance(value, torch.Tensor):
        return value
    return InputRecord(
        shape=tuple(value.shape),
        stride=tuple(value.stride()),
        dtype=value.dtype,
        device=value.device,
        storage_offset=int(value.storage_offset()),
    )
