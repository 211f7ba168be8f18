"""What a graph promises to return, and whether results keep it.

Promises are fake values. Kernels of ATen's that depart from their own fakes break none: they do
the same without us. Raising errors is `first_run.py`'s job.
"""

from __future__ import annotations

import operator
from collections.abc import Sequence
from typing import Any

import torch
from torch import fx
from torch._subclasses.fake_tensor import FakeTensor

from thunder.trace.copying import output_values
from thunder.trace.targets import FusedRegion
from thunder.trace.tensor_spec import describe

Broken = tuple[str, str]
"""What was promised and what came instead, in words."""

_ATTENTION = frozenset(
    {
        torch.ops.aten._scaled_dot_product_cudnn_attention.default,
        torch.ops.aten._scaled_dot_product_efficient_attention.default,
        torch.ops.aten._scaled_dot_product_flash_attention.default,
        torch.ops.aten._cudnn_attention_forward.default,
        torch.ops.aten._efficient_attention_forward.default,
        torch.ops.aten._flash_attention_forward.default,
    }
)
"""Where the state of the random generator, which they return, is depends on the kernel's options:
fakes say on the GPU, and without dropout it is a number on the CPU."""


def promised_outputs(graph: fx.Graph) -> tuple[Any, ...]:
    """Returns what a graph from AOTAutograd promises to return: fake values, in order.

    Args:
        graph: The ATen graph.
    """
    return tuple(map(_promise, output_values(graph)))


def broken_by_node(node: fx.Node, result: Any) -> Broken | None:
    """Returns how the result of a region, or of an operator that was claimed, breaks its promise.

    Args:
        node: The node; its `meta["val"]` is the promise.
        result: What it returned.

    Returns:
        The first promise that is broken; None when all are kept.
    """
    if isinstance(node.target, FusedRegion):
        return broken_by_results(output_values(node.target.graph_module.graph), result)
    return _disagreement(_promise(node), result)


def broken_by_results(values: Sequence[Any], results: Sequence[Any]) -> Broken | None:
    """Returns how results break the promises of the nodes that they belong to.

    Args:
        values: Nodes, None or constants, as `output_values` returns them.
        results: What came for each.

    Returns:
        The first promise that is broken; None when all are kept.
    """
    return _disagreement([_promise(value) for value in values], results)


def broken_by_graph(
    graph: fx.Graph, promised: Sequence[Any], outputs: Sequence[Any]
) -> tuple[int, Broken] | None:
    """Returns how the results of a graph break what was promised of it before it was changed.

    Args:
        graph: The graph as it was run.
        promised: What `promised_outputs` returned, as many as there are outputs.
        outputs: What it returned.

    Returns:
        The position of the first output that breaks its promise, and how; None when none does.
    """
    sources = output_values(graph)
    for position, (promise, output) in enumerate(zip(promised, outputs, strict=True)):
        broken = _disagreement(promise, output)
        if broken and not _is_the_kernels(sources[position], promise):
            return position, broken
    return None


def _promise(value: Any) -> Any:
    """Returns a node's fake value; None where no promise is to be relied on."""
    if not isinstance(value, fx.Node):
        return value
    return None if _is_random_state(value) else value.meta.get("val")


def _is_random_state(node: fx.Node) -> bool:
    operation = _operation(node)
    value = node.meta.get("val")
    return (
        operation.target in _ATTENTION
        and isinstance(value, torch.Tensor)
        and not value.is_floating_point()
    )


def _operation(node: fx.Node) -> fx.Node:
    """Returns what computes a value, which may be one of several, and in a region."""
    while node.target is operator.getitem:
        source, index = node.args
        assert isinstance(source, fx.Node) and isinstance(index, int)
        if not isinstance(source.target, FusedRegion):
            return source
        inner = output_values(source.target.graph_module.graph)[index]
        if not isinstance(inner, fx.Node):
            return source
        node = inner
    return node


def _is_the_kernels(source: Any, promise: Any) -> bool:
    """Whether an operator of ATen's promises just this, so that its kernel departs from it."""
    if not isinstance(source, fx.Node):
        return False
    if _is_random_state(source):
        return True
    fake = _fake_result(source)
    return fake is not None and _disagreement(promise, fake) is None


def _fake_result(node: fx.Node) -> Any:
    """Runs ATen's fake of a node; None where the node is none of ATen's operators."""
    if node.target is operator.getitem:
        whole = _fake_result(node.args[0]) if isinstance(node.args[0], fx.Node) else None
        return None if whole is None else whole[node.args[1]]
    if not isinstance(node.target, torch._ops.OpOverload):
        return None
    values = [source.meta.get("val") for source in node.all_input_nodes]
    modes = [value.fake_mode for value in values if isinstance(value, FakeTensor)]
    if not modes or any(value is None for value in values):
        return None
    args, kwargs = fx.map_arg((node.args, node.kwargs), lambda source: source.meta["val"])
    try:
        with modes[0]:
            return node.target(*args, **kwargs)
    except (RuntimeError, TypeError, ValueError):  # a transform left fakes that do not fit
        return None


def _disagreement(promised: Any, result: Any) -> Broken | None:
    if isinstance(promised, list | tuple):
        results = list(result) if isinstance(result, list | tuple) else [result]
        if len(results) != len(promised):
            return f"{len(promised)} outputs", f"{len(results)}"
        pairs = zip(promised, results, strict=True)
        return next(filter(None, (_disagreement(*pair) for pair in pairs)), None)
    if not isinstance(promised, torch.Tensor):
        return None
    if not isinstance(result, torch.Tensor):
        return describe(promised), describe(result)
    same = result.dtype == promised.dtype and result.device == promised.device
    if same and _same_shape(result.shape, promised.shape):
        return None
    return describe(promised), describe(result)


def _same_shape(shape: Sequence[int], promised: Sequence[Any]) -> bool:
    if len(shape) != len(promised):
        return False
    return all(
        size == want for size, want in zip(shape, promised, strict=True) if isinstance(want, int)
    )
