"""What is known of the values of a captured graph's nodes, from Dynamo's fake propagation.

A tensor's shape and strides here can be those after a later in-place change of them (`t_`,
`unsqueeze_`), since Dynamo keeps one fake tensor per object. Kind, dtype and storage are reliable.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import torch
from torch import fx
from torch._subclasses.fake_tensor import FakeTensor

SCALARS = (bool, int, float, torch.SymBool, torch.SymInt, torch.SymFloat)


def value_of(node: fx.Node) -> Any:
    """Returns the example value of a node, or None when it has none."""
    return node.meta.get("example_value")


def is_scalar(node: fx.Node) -> bool:
    """Whether a node gives a number, symbolic or not."""
    return isinstance(value_of(node), SCALARS)


def is_structured(node: fx.Node) -> bool:
    """Whether a node gives a tuple, list or `torch.Size`."""
    return isinstance(value_of(node), tuple | list)


def storages(node: fx.Node) -> frozenset[int]:
    """Returns keys of the memory that a node's tensors lie in.

    Args:
        node: Any node. Functorch's wrappers, which have no storage of their own, give none.
    """
    return frozenset(_storages(value_of(node)))


def _storages(value: Any) -> Iterable[int]:
    if isinstance(value, torch.Tensor):
        try:
            yield value.untyped_storage()._cdata
        except (NotImplementedError, RuntimeError):  # a wrapper, or a layout without storage
            return
    elif isinstance(value, tuple | list):
        for element in value:
            yield from _storages(element)


def input_storages(node: fx.Node) -> frozenset[int]:
    """Returns keys of the memory that the inputs of a node lie in."""
    return frozenset().union(*(storages(used) for used in node.all_input_nodes))


def lasting_memory(graph: fx.Graph) -> set[int]:
    """Returns keys of the memory that is there before a graph runs, in inputs and attributes.

    Args:
        graph: A captured graph.
    """
    keys: set[int] = set()
    for node in graph.nodes:
        if node.op in ("placeholder", "get_attr"):
            keys |= storages(node)
            if value_of(node) is None:  # what views it is known by its users only
                keys = keys.union(*map(storages, node.users))
    return keys


def requires_grad(node: fx.Node) -> bool:
    """Whether any tensor that a node gives requires a gradient."""
    value = value_of(node)
    elements = value if isinstance(value, tuple | list) else (value,)
    return any(isinstance(each, torch.Tensor) and each.requires_grad for each in elements)


def fresh_like(value: FakeTensor) -> torch.Tensor:
    """Makes a fake tensor of the same kind as another, with memory of its own.

    Args:
        value: A fake tensor, which may be a fake parameter.
    """
    with value.fake_mode, torch.no_grad():
        return torch.empty_strided(
            value.shape, value.stride(), dtype=value.dtype, device=value.device
        ).requires_grad_(value.requires_grad)
