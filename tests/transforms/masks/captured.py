"""Captures what Dynamo hands to a backend, and evaluates functions of an index in the slow way."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch import fx

from thunder.transforms.masks.affine import Affine, Index, Size
from thunder.transforms.masks.analysis import observe
from thunder.transforms.masks.indexed_tensor import IndexedTensor
from thunder.transforms.masks.piecewise import Leaf, Tree, Value

MARK = torch.sgn
"""Programs pass what the tests ask about to this function, which no rule knows."""


def capture(program: Callable[..., Any], *args: Any, dynamic: bool | None = None) -> fx.GraphModule:
    """Returns the one graph that Dynamo makes of a program."""
    graphs: list[fx.GraphModule] = []

    def backend(graph_module, inputs):
        graphs.append(graph_module)
        return graph_module

    torch.compile(program, backend=backend, fullgraph=True, dynamic=dynamic)(*args)
    (graph,) = graphs
    return graph


def marked(graph_module: fx.GraphModule) -> list[IndexedTensor | None]:
    """Returns what the analysis says of each marked tensor."""
    watch = lambda node: node.args[0] if node.target is MARK else None  # noqa: E731
    return [observation.tensor for observation in observe(graph_module, watch)]


def dense(tensor: IndexedTensor, sizes: Mapping[str, int] | None = None) -> torch.Tensor:
    """Returns the tensor with every element evaluated by itself."""
    named = sizes or {}
    shape = [number(expression, (), named) for expression in tensor.shape]
    elements = [
        element(tensor.tree, index, named) for index in itertools.product(*map(range, shape))
    ]
    return torch.tensor(elements, dtype=tensor.dtype).reshape(shape)


def element(tree: Tree, at: Sequence[int], sizes: Mapping[str, int]) -> bool | int | float:
    """Returns the value of a function at one index."""
    if isinstance(tree, Leaf):
        value: Value = tree.value
        return number(value, at, sizes) if isinstance(value, Affine) else value
    holds = number(tree.condition, at, sizes) >= 0
    return element(tree.holds if holds else tree.fails, at, sizes)


def number(expression: Affine, at: Sequence[int], sizes: Mapping[str, int]) -> int:
    """Returns the value of an expression."""
    total = expression.constant
    for of, scale in expression.terms:
        match of:
            case Index(dimension):
                total += scale * at[dimension]
            case Size(name):
                total += scale * sizes[name]
            case _:
                raise AssertionError(f"{of} belongs to a vmap that is over")
    return total
