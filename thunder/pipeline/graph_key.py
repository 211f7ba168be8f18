"""A key under which what was measured of a graph can be found again, in any process."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping
from typing import Any

import torch
from torch import fx
from torch.utils._pytree import tree_leaves

from thunder.environment import distribution_version
from thunder.trace.tensor_spec import describe

_DISTRIBUTIONS = ("torch", "triton", "thunderfx")


def graph_key(
    graph_module: fx.GraphModule, entrants: Iterable[str], settings: Mapping[str, Any]
) -> str:
    """Returns what a measurement of a graph is kept under.

    Args:
        graph_module: The ATen graph; `meta["val"]` of its nodes holds fake values. Names of nodes
            and source lines do not count; shapes, strides, and the sizes that symbols have now do.
        entrants: Names and versions of the entrants.
        settings: Inductor settings in use.

    Returns:
        64 hexadecimal digits.
    """
    facts = [
        *_graph_lines(graph_module),
        *sorted(_device_names(graph_module.graph)),
        *entrants,
        *(f"{name}={value!r}" for name, value in sorted(settings.items())),
    ]
    return measurement_key(facts)


def measurement_key(facts: Iterable[str]) -> str:
    """Returns what a measurement of anything is kept under.

    Args:
        facts: All it depends on, but for the versions of torch, Triton and thunder.

    Returns:
        64 hexadecimal digits.
    """
    versions = (f"{name} {distribution_version(name)}" for name in _DISTRIBUTIONS)
    return hashlib.sha256("\n".join([*facts, *versions]).encode()).hexdigest()


def _graph_lines(graph_module: fx.GraphModule) -> list[str]:
    """Writes a graph and those inside of it down, nodes by their numbers."""
    lines = []
    for name, module in graph_module.named_modules():
        if not isinstance(module, fx.GraphModule):
            continue
        lines.append(f"graph {name}")
        numbers = {node: _Number(index) for index, node in enumerate(module.graph.nodes)}
        for node, number in numbers.items():
            arguments = fx.map_arg((node.args, node.kwargs), numbers.__getitem__)
            target = "" if node.op == "placeholder" else _target_name(node.target)
            value = " ".join(map(_value, tree_leaves(node.meta.get("val"))))
            lines.append(f"{number!r} {node.op} {target} {arguments} {value}")
    return lines


class _Number(int):
    """A node by its place in the graph."""

    def __repr__(self) -> str:
        """Unlike any number."""
        return f"%{int(self)}"


def _target_name(target: Any) -> str:
    if isinstance(target, str | torch._ops.OpOverload | torch._ops.HigherOrderOperator):
        return str(target)
    return f"{target.__module__}.{target.__qualname__}"


def _value(value: Any) -> str:
    if not isinstance(value, torch.Tensor):
        return f"{describe(value)}={_hint(value)}"
    sizes = (*value.shape, *(value.stride() if value.layout is torch.strided else ()))
    return f"{describe(value)} {[_hint(size) for size in sizes]}"


def _hint(size: Any) -> Any:
    node = getattr(size, "node", None)
    if node is None:
        return size if isinstance(size, int | float | bool) else None
    return node.hint if node.has_hint() else str(size)


def _device_names(graph: fx.Graph) -> set[str]:
    devices = {
        value.device
        for node in graph.nodes
        for value in tree_leaves(node.meta.get("val"))
        if isinstance(value, torch.Tensor)
    }
    return {
        torch.cuda.get_device_name(device) if device.type == "cuda" else device.type
        for device in devices
    }
