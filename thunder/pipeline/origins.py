"""What an ATen graph's inputs and gradients are in the user's program.

AOTAutograd numbers its inputs (`primals_3`). Dynamo knows where each came from, and AOTAutograd's
descriptors say which is which; this module is the adapter to both. A trace then says
`self.fc1.weight` beside the number.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

from torch import fx
from torch._functorch._aot_autograd import descriptors

from thunder.trace.targets import ORIGIN

_ROOT = re.compile(r"^[LG]\['(\w+)'\]")
_MEMBER = re.compile(r"\._(?:modules|parameters|buffers)\['([^']+)'\]")


def input_origins(captured: fx.Graph) -> tuple[str, ...]:
    """Returns what each placeholder of a captured graph is in the user's program.

    Args:
        captured: The graph from Dynamo, or a part of it.

    Returns:
        Expressions in the manner of `named_parameters`, such as `self.layers.0.weight`; where
        Dynamo names no source (the placeholder is another part's result), the node's name.
    """
    return tuple(_origin(node) for node in captured.find_nodes(op="placeholder"))


def name_origins(graph: fx.Graph, origins: Sequence[str]) -> None:
    """Notes at an ATen graph's placeholders and output what they are.

    Args:
        graph: The graph from AOTAutograd; `meta` of its nodes is written to.
        origins: What `input_origins` gave for the captured graph.
    """
    for node in graph.find_nodes(op="placeholder"):
        origin = _described(node.meta.get("desc"), origins)
        if origin is not None:
            node.meta[ORIGIN] = origin
    output = graph.output_node()
    described = output.meta.get("desc")
    if isinstance(described, Sequence):
        output.meta[ORIGIN] = tuple(_gradient(each, origins) for each in described)


def _origin(node: fx.Node) -> str:
    graph_argument = node.meta.get("grapharg")
    source = getattr(graph_argument, "source", None) or getattr(node, "_dynamo_source", None)
    if source is None:
        return node.name
    written = source.name if isinstance(source.name, str) else source.name()
    return _MEMBER.sub(r".\1", _ROOT.sub(r"\1", written))


def _described(descriptor: Any, origins: Sequence[str]) -> str | None:
    match descriptor:
        case descriptors.PlainAOTInput(idx=index) if index < len(origins):
            return origins[index]
        case descriptors.ParamAOTInput(target=target) | descriptors.BufferAOTInput(target=target):
            return target
        case descriptors.TangentAOTInput(output=descriptors.PlainAOTOutput(idx=index)):
            return f"gradient of output {index}"
    return None


def _gradient(descriptor: Any, origins: Sequence[str]) -> str | None:
    if isinstance(descriptor, descriptors.GradAOTOutput):
        of = _described(descriptor.grad_of, origins)
        return None if of is None else f"gradient of {of}"
    return None
