"""Copies of graph modules that share tensors but not graphs.

Passes change graphs in place, so what a report or a fallback needs later is copied first.
"""

from __future__ import annotations

import copy
from typing import Any

import torch
from torch import fx
from torch.fx._lazy_graph_module import _make_graph_module, _use_lazy_graph_module

_DYNAMO_MODULE_ATTRIBUTES = ("_param_name_to_source", "shape_env", "compile_subgraph_reason")


def copy_graph(graph: fx.Graph) -> fx.Graph:
    """Returns a copy of `graph`: same nodes, names and metadata, other objects.

    Args:
        graph: Any fx graph. Metadata values (fake tensors) are shared, the dicts are not.
    """
    copied = copy.deepcopy(graph)  # fx copies nodes here, and `meta` shallowly
    for old, new in zip(graph.nodes, copied.nodes, strict=True):
        if old.op == "output":
            new.meta = copy.copy(old.meta)
        if hasattr(old, "_dynamo_source"):  # an attribute of torch's own, which fx does not copy
            new._dynamo_source = old._dynamo_source
    return copied


def copy_graph_module(graph_module: fx.GraphModule) -> fx.GraphModule:
    """Returns a copy of a graph module, nested graph modules included.

    Args:
        graph_module: The module. Its tensors, parameters and plain submodules are shared.

    Example:
        >>> import torch
        >>> gm = torch.fx.symbolic_trace(lambda x: x + 1)
        >>> other = copy_graph_module(gm)
        >>> other.graph is gm.graph, other.code == gm.code
        (False, True)
    """
    copied = make_graph_module(
        graph_module, copy_graph(graph_module.graph), type(graph_module).__name__
    )
    inherit_from_dynamo(copied, graph_module)
    for name, child in copied.named_children():
        if isinstance(child, fx.GraphModule):
            setattr(copied, name, copy_graph_module(child))
    return copied


def inherit_from_dynamo(graph_module: fx.GraphModule, original: fx.GraphModule) -> None:
    """Gives a graph module what Dynamo keeps on the one that it was made from.

    Args:
        graph_module: A copy or a piece of `original`; changed in place.
        original: The graph module that Dynamo made, or a copy of it.
    """
    graph_module.meta = copy.copy(original.meta)
    graph_module.train(original.training)
    for name in _DYNAMO_MODULE_ATTRIBUTES:
        if name in vars(original):
            setattr(graph_module, name, vars(original)[name])


def output_values(graph: fx.Graph) -> list[Any]:
    """Returns what a graph returns, in order: nodes, None or constants.

    Args:
        graph: A graph whose output is a tuple or list, as AOTAutograd's are.
    """
    values = graph.output_node().args[0]
    assert isinstance(values, tuple | list)
    return list(values)


def make_graph_module(
    root: torch.nn.Module | dict[str, Any], graph: fx.Graph, class_name: str = "GraphModule"
) -> fx.GraphModule:
    """Makes a graph module whose Python code is generated when it is first needed.

    Args:
        root: Where the attributes that the graph names are taken from.
        graph: The graph; the module takes it over.
        class_name: Name of the module's class.
    """
    with _use_lazy_graph_module(True):  # printing the code of each copy would double their cost
        return _make_graph_module(root, graph, class_name)
