"""`thunder.jit` of an fx `GraphModule`: no Dynamo, one compile for each kind of inputs."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, final

import torch
from torch import fx
from torch._subclasses.fake_tensor import FakeTensorMode

from thunder.errors import OptionError
from thunder.pipeline.aot import compile_returning_tuple
from thunder.trace.copying import copy_graph_module


@final
class CompiledGraphModule:
    """A graph module whose calls run compiled code.

    Sizes are not made symbolic: other shapes, strides, dtypes, devices, numbers, gradient or
    autocast modes, or new parameters mean another compile. Inputs are positional.
    """

    def __init__(
        self, graph_module: fx.GraphModule, backend: Callable[..., Callable[..., Any]]
    ) -> None:
        """Keeps the graph module; nothing is compiled before the first call.

        Args:
            graph_module: The graph; its placeholders are tensors or Python numbers.
            backend: What compiles it, a `ThunderCompiler`; for `thunder.diagnose`, another one.
        """
        self._graph_module = graph_module
        self._backend = backend
        self._compiled: dict[tuple[Any, ...], Callable[..., Any]] = {}
        self.__wrapped__ = graph_module
        self.__name__ = type(graph_module).__name__

    def __call__(self, *inputs: Any) -> Any:
        """Runs the graph; compiles it first when these inputs are of a new kind."""
        key = self._key(inputs)
        compiled = self._compiled.get(key)
        if compiled is None:
            compiled = self._compiled[key] = self._compile(inputs)
        return compiled(*inputs)

    def _compile(self, inputs: Sequence[Any]) -> Callable[..., Any]:
        graph_module = copy_graph_module(self._graph_module)
        placeholders = graph_module.graph.find_nodes(op="placeholder")
        if len(placeholders) != len(inputs):
            raise OptionError(
                f"{self.__name__} takes {len(placeholders)} positional inputs, "
                f"{len(inputs)} were given"
            )
        with FakeTensorMode(allow_non_fake_inputs=True) as mode:
            for node, value in zip(placeholders, inputs, strict=True):
                is_tensor = isinstance(value, torch.Tensor)
                example = mode.from_tensor(value, static_shapes=True) if is_tensor else value
                node.meta["example_value"] = example
        return compile_returning_tuple(graph_module, inputs, self._backend)

    def _key(self, inputs: Sequence[Any]) -> tuple[Any, ...]:
        storages: dict[int, int] = {}
        parts = [_kind(value, storages) for value in inputs]
        tensors = (*self._graph_module.parameters(), *self._graph_module.buffers())
        parts += [(id(tensor), tensor.requires_grad) for tensor in tensors]
        modes = (
            torch.is_grad_enabled(),
            torch.is_inference_mode_enabled(),
            torch.is_autocast_enabled("cpu"),
            torch.is_autocast_enabled("cuda"),
        )
        return (*parts, modes)


def _kind(value: Any, storages: dict[int, int]) -> Any:
    """What a compile depends on; tensors that share memory get the same number."""
    if not isinstance(value, torch.Tensor):
        return (type(value), value)
    storage = storages.setdefault(value.untyped_storage()._cdata, len(storages))
    return (
        type(value),
        tuple(value.shape),
        value.stride() if value.layout is torch.strided else value.layout,
        value.storage_offset() if value.layout is torch.strided else 0,
        value.dtype,
        value.device,
        value.requires_grad,
        storage,
    )
