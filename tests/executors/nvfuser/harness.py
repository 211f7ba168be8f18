"""Traces a function to an ATen graph, runs it through the nvFuser executor, compares with eager.

Used on the CPU with `fake_nvfuser` and on the GPU with the real library.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import fx
from torch._inductor.decomposition import select_decomp_table
from torch.fx.experimental.proxy_tensor import make_fx
from torch.utils._pytree import tree_leaves, tree_map

from tests.executors.nvfuser import fake_nvfuser
from thunder.executors.base import RegionContext
from thunder.executors.nvfuser import NvFuserExecutor, NvFuserRegion


def executor_for(device: str, **options: Any) -> NvFuserExecutor:
    """Returns the executor: the real one on cuda, one over the fake elsewhere."""
    if device == "cuda":
        return NvFuserExecutor(**options)
    return NvFuserExecutor(device_type=device, library_module=fake_nvfuser, **options)


def trace(
    function: Callable[..., Any], inputs: Sequence[Any], *, decompose: bool
) -> fx.GraphModule:
    """Returns the functional ATen graph of `function`, with a tuple of tensors as output."""
    table = select_decomp_table() if decompose else None

    def flat(*args):
        return tuple(x for x in tree_leaves(function(*args)) if isinstance(x, torch.Tensor))

    graph_module = make_fx(flat, decomposition_table=table, tracing_mode="fake")(*inputs)
    graph_module.graph.eliminate_dead_code()
    return graph_module


def refusals(graph_module: fx.GraphModule, executor: NvFuserExecutor) -> dict[str, str]:
    """Returns why nodes are not taken, by the node's operator."""
    found = {}
    for node in graph_module.graph.nodes:
        if node.op == "call_function":
            refusal = executor.check(node)
            if refusal is not None:
                found[str(node.target)] = refusal.reason
        elif node.op == "get_attr":
            found[node.name] = "a constant of the graph"
    return found


def compile_region(
    function: Callable[..., Any], inputs: Sequence[Any], *, decompose: bool, **options: Any
) -> NvFuserRegion:
    """Traces and compiles `function` as one region."""
    device = next(x.device.type for x in inputs if isinstance(x, torch.Tensor) and x.ndim >= 0)
    executor = executor_for(device, **options)
    graph_module = trace(function, inputs, decompose=decompose)
    refused = refusals(graph_module, executor)
    assert not refused, refused
    return compile_graph(graph_module, inputs, executor)


def compile_graph(
    graph_module: fx.GraphModule, inputs: Sequence[Any], executor: NvFuserExecutor
) -> NvFuserRegion:
    """Compiles a traced graph as one region."""
    context = RegionContext(name="nvFusion0", direction="inference", whole_graph=False)
    fakes = [node.meta["val"] for node in graph_module.graph.find_nodes(op="placeholder")]
    region = executor.compile(graph_module, fakes, context)
    assert isinstance(region, NvFuserRegion)
    return region


def double(value: Any) -> Any:
    """Returns a floating-point tensor in float64, anything else as it is."""
    if isinstance(value, torch.Tensor) and value.is_floating_point():
        return value.double()
    return value


def check_against_eager(
    function: Callable[..., Any],
    inputs: Sequence[Any],
    *,
    decompose: bool = True,
    exact_strides: bool = True,
    **options: Any,
) -> NvFuserRegion:
    """Holds a region to eager: dtypes, shapes, strides, values, fresh memory.

    Values may be as far from a float64 reference as eager's are, twice over, plus a few units in
    the last place of the largest; integers, bools and whatever is not finite must be equal.
    """
    region = compile_region(function, inputs, decompose=decompose, **options)
    with torch.no_grad():
        expected = [x for x in tree_leaves(function(*inputs)) if isinstance(x, torch.Tensor)]
        reference = [None] * len(expected)
        with contextlib.suppress(RuntimeError, TypeError, ValueError):
            reference = [
                x
                for x in tree_leaves(function(*tree_map(double, list(inputs))))
                if isinstance(x, torch.Tensor)
            ]
        for _ in range(2):  # compiling and cached
            compare(region(*inputs), expected, reference, exact_strides=exact_strides)
    return region


def compare(
    results: Sequence[Any],
    expected: Sequence[torch.Tensor],
    reference: Sequence[torch.Tensor | None],
    *,
    exact_strides: bool = True,
) -> None:
    """Compares outputs one by one; see `check_against_eager`."""
    assert len(results) == len(expected)
    for result, eager, exact in zip(results, expected, reference, strict=True):
        assert result.dtype == eager.dtype and result.device == eager.device
        assert result.shape == eager.shape
        if exact_strides:
            assert result.stride() == eager.stride()
        if not eager.is_floating_point():
            assert torch.equal(result, eager)
            continue
        close(result, eager, eager if exact is None else exact)


def close(result: torch.Tensor, eager: torch.Tensor, reference: torch.Tensor) -> None:
    """Judges a floating-point result by the distance of both from the reference."""
    assert torch.equal(torch.isnan(result), torch.isnan(eager))
    infinite = torch.isinf(eager)
    assert torch.equal(torch.isinf(result), infinite)
    assert torch.equal(result[infinite], eager[infinite])
    unit = torch.finfo(eager.dtype).eps
    kept = torch.isfinite(eager) & torch.isfinite(reference)
    result, eager, reference = (x[kept].double() for x in (result, eager, reference))
    if result.numel() == 0:
        return
    allowed = 2 * (eager - reference).abs().max() + 8 * unit * (1 + reference.abs().max())
    error = (result - reference).abs().max()
    assert error <= allowed, f"error {error:.3g}, allowed {allowed:.3g}"
