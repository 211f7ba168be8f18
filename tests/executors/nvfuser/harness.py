"""Traces a function to an ATen graph, runs it through the nvFuser executor, compares with eager.

Used on the CPU with `fake_nvfuser` and on the GPU with the real library.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Sequence
from typing import Any

import torch
from functorch.compile import aot_function, min_cut_rematerialization_partition
from torch import fx
from torch._functorch._aot_autograd.utils import make_boxed_func
from torch._inductor.decomposition import select_decomp_table
from torch.fx.experimental.proxy_tensor import make_fx
from torch.utils._pytree import tree_leaves, tree_map

from tests.executors.nvfuser import fake_nvfuser
from thunder.executors.base import RegionContext
from thunder.executors.nvfuser import NvFuserExecutor, NvFuserRegion
from thunder.executors.nvfuser.outputs import plan_outputs
from thunder.executors.nvfuser.sizes import all_concrete
from thunder.trace.copying import output_values


def executor_for(device: str, **options: Any) -> NvFuserExecutor:
    """Returns the executor: the real one on cuda, one over the fake elsewhere."""
    if device == "cuda":
        return NvFuserExecutor(**options)
    return NvFuserExecutor(device_type=device, library_module=fake_nvfuser, **options)


def trace(
    function: Callable[..., Any], inputs: Sequence[Any], *, decompose: bool = False
) -> fx.GraphModule:
    """Returns the ATen graph of `function`, with a tuple of tensors as output.

    Args:
        function: Takes the inputs.
        inputs: Tensors.
        decompose: Whether to decompose as Inductor does and to remove mutations.
    """

    def flat(*args):
        return tuple(x for x in tree_leaves(function(*args)) if isinstance(x, torch.Tensor))

    functional = torch.func.functionalize(flat, remove="mutations") if decompose else flat
    table = select_decomp_table() if decompose else None
    graph_module = make_fx(functional, table, tracing_mode="fake")(*inputs)
    graph_module.graph.eliminate_dead_code()
    return graph_module


def compiled_by_aot(
    function: Callable[..., Any], executor: NvFuserExecutor, *, dynamic: bool = False
) -> tuple[Callable[..., Any], list[NvFuserRegion]]:
    """Compiles `function` as AOTAutograd does, each graph one region.

    Returns:
        What to call, differentiable, and a list that gets the regions once it is called.
    """
    regions: list[NvFuserRegion] = []

    def compiler(gm: fx.GraphModule, example_inputs: Sequence[Any]) -> Any:
        graph_module = gm
        refused = refusals(graph_module, executor)
        assert not refused, refused
        if not plan_outputs(graph_module.graph).fused:  # nothing but views
            return make_boxed_func(graph_module.forward)
        region = compile_graph(graph_module, executor, example_inputs)
        regions.append(region)

        def run(*args):
            results = region(*args)
            for node, result in zip(output_values(graph_module.graph), results, strict=True):
                if isinstance(result, torch.Tensor) and all_concrete(node.meta["val"].stride()):
                    assert result.stride() == node.meta["val"].stride(), node
            return results

        return make_boxed_func(run)

    compiled = aot_function(
        function,
        fw_compiler=compiler,
        bw_compiler=compiler,
        inference_compiler=compiler,
        decompositions=select_decomp_table(),
        partition_fn=min_cut_rematerialization_partition,
        dynamic=dynamic,
    )
    return compiled, regions


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
    function: Callable[..., Any], inputs: Sequence[Any], **options: Any
) -> NvFuserRegion:
    """Traces `function`, not decomposed, and compiles it as one region."""
    executor = executor_for(inputs[0].device.type, **options)
    graph_module = trace(function, inputs)
    refused = refusals(graph_module, executor)
    assert not refused, refused
    return compile_graph(graph_module, executor)


def compile_graph(
    graph_module: fx.GraphModule,
    executor: NvFuserExecutor,
    example_inputs: Sequence[Any] | None = None,
) -> NvFuserRegion:
    """Compiles a traced graph as one region."""
    context = RegionContext(name="nvFusion0", direction="inference", whole_graph=False)
    fakes = [node.meta["val"] for node in graph_module.graph.find_nodes(op="placeholder")]
    region = executor.compile(graph_module, example_inputs or fakes, context)
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
    exact_strides: bool = True,
    **options: Any,
) -> NvFuserRegion:
    """Holds a region to eager: dtypes, shapes, strides and values.

    Values may be as far from a float64 reference as eager's are, twice over, plus a few units in
    the last place of the largest; integers, bools and whatever is not finite must be equal.
    """
    region = compile_region(function, inputs, **options)
    expected, reference = with_reference(function, inputs)
    for _ in range(2):  # compiling and cached
        compare(region(*inputs), expected, reference, exact_strides=exact_strides)
    return region


def with_reference(
    function: Callable[..., Any], inputs: Sequence[Any]
) -> tuple[list[torch.Tensor], Sequence[torch.Tensor | None]]:
    """Returns eager's results, and those in float64 where the function can run in it."""
    expected = _tensors(function(*inputs))
    reference: Sequence[torch.Tensor | None] = [None] * len(expected)
    with contextlib.suppress(RuntimeError, TypeError, ValueError):
        reference = _tensors(function(*tree_map(double, list(inputs))))
    return expected, reference


def _tensors(results: Any) -> list[torch.Tensor]:
    return [x for x in tree_leaves(results) if isinstance(x, torch.Tensor)]


def differentiated(
    function: Callable[..., Any], inputs: Sequence[torch.Tensor], seed: int = 0
) -> list[torch.Tensor]:
    """Returns the results of `function`, and the gradients of its floating-point inputs."""
    leaves = [x.detach().requires_grad_() if x.is_floating_point() else x for x in inputs]
    results = _tensors(function(*leaves))
    generator = torch.Generator().manual_seed(seed)
    smooth = [x for x in results if x.requires_grad]
    gradients = [torch.randn(x.shape, generator=generator).to(x) for x in smooth]
    wanted = [x for x in leaves if x.requires_grad]
    found = torch.autograd.grad(smooth, wanted, gradients, allow_unused=True)
    return [*(x.detach() for x in results), *(x for x in found if x is not None)]


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
