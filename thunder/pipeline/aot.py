"""The one adapter to AOTAutograd: a torch-level graph in, a compiled callable out.

Two ways lead through it. With a fusion executor, `compile_fx` is called as `torch.compile` calls
it, so that pre-grad, joint-graph and partitioning passes, decompositions and layouts are the
same; its `inner_compile` hook hands over the ATen graphs. Without one, AOTAutograd is called
directly: operators stay as they are, random numbers are eager's.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch import fx
from torch._dynamo.backends.common import aot_autograd
from torch._functorch import config as functorch_config
from torch._functorch.partitioners import default_partition
from torch._inductor.compile_fx import compile_fx, graph_returns_tuple, make_graph_return_tuple
from torch._inductor.decomposition import select_decomp_table
from torch._inductor.utils import get_donated_idxs

from thunder.pipeline.lowering import GraphRequest
from thunder.pipeline.returned_inputs import compile_without_returned_inputs
from thunder.trace.trace import Direction

GraphCompiler = Callable[[GraphRequest], Callable[[list[Any]], Sequence[Any]]]
"""Compiles one ATen graph; the result takes one list of inputs, which it may clear."""


def compile_with_inductor_passes(
    graph_module: fx.GraphModule,
    example_inputs: Sequence[Any],
    compile_graph: GraphCompiler,
    *,
    inductor_config: Mapping[str, Any],
    undecomposed: Sequence[torch._ops.OpOverload] = (),
) -> Callable[..., Any]:
    """Compiles a graph by the way of `torch.compile`, except for the ATen graphs themselves.

    Args:
        graph_module: The torch-level graph; it is consumed.
        example_inputs: One value for each placeholder.
        compile_graph: Compiles each ATen graph. The backward graph may come at the first
            backward only.
        inductor_config: Inductor settings that hold while compiling.
        undecomposed: Operators that Inductor's decompositions must leave alone.

    Returns:
        A function of the placeholders' values.
    """

    def inner_compile(
        aten: fx.GraphModule, inputs: Sequence[Any], **aot_arguments: Any
    ) -> Callable[[list[Any]], Sequence[Any]]:
        direction = _direction(aot_arguments)
        is_backward = direction is Direction.BACKWARD
        return compile_graph(
            GraphRequest(
                graph_module=aten,
                example_inputs=inputs,
                direction=direction,
                aot_arguments=aot_arguments,
                donated=frozenset(get_donated_idxs() or ()) if is_backward else frozenset(),
            )
        )

    decompositions = None
    if undecomposed:
        table = select_decomp_table()
        decompositions = {op: rule for op, rule in table.items() if op not in undecomposed}
    # On a hit AOTAutograd's cache would skip inner_compile, and with it traces and reports;
    # Inductor's own cache of compiled graphs stays on.
    with functorch_config.patch(enable_autograd_cache=False):
        return compile_without_returned_inputs(
            graph_module,
            lambda: _callable(
                compile_fx(
                    graph_module,
                    list(example_inputs),
                    inner_compile=inner_compile,  # pyright: ignore[reportArgumentType] - returns what it got
                    config_patches=dict(inductor_config) or None,
                    decompositions=decompositions,
                )
            ),
        )


def compile_plainly(
    graph_module: fx.GraphModule,
    example_inputs: Sequence[Any],
    inductor_config: Mapping[str, Any],
) -> Callable[..., Any]:
    """Compiles a graph as `torch.compile` does, with Inductor all the way.

    Args:
        graph_module: The torch-level graph; it is consumed.
        example_inputs: One value for each placeholder.
        inductor_config: Inductor settings that hold while compiling.

    Returns:
        A function of the placeholders' values.
    """
    patches = dict(inductor_config) or None
    return compile_without_returned_inputs(
        graph_module,
        lambda: _callable(compile_fx(graph_module, list(example_inputs), config_patches=patches)),
    )


def compile_op_by_op(
    graph_module: fx.GraphModule, example_inputs: Sequence[Any], compile_graph: GraphCompiler
) -> Callable[..., Any]:
    """Compiles a graph by AOTAutograd alone, without decompositions.

    Args:
        graph_module: The torch-level graph; it is consumed.
        example_inputs: One value for each placeholder.
        compile_graph: Compiles each ATen graph.

    Returns:
        A function of the placeholders' values.
    """

    def compiler(direction: Direction) -> Callable[..., Any]:
        return lambda aten, inputs: compile_graph(
            GraphRequest(
                graph_module=aten, example_inputs=inputs, direction=direction, aot_arguments={}
            )
        )

    autograd = aot_autograd(
        fw_compiler=compiler(Direction.FORWARD),
        bw_compiler=compiler(Direction.BACKWARD),
        inference_compiler=compiler(Direction.INFERENCE),
        partition_fn=_partition,
        keep_inference_input_mutations=True,
    )
    return compile_without_returned_inputs(
        graph_module, lambda: autograd(graph_module, list(example_inputs))
    )


def _partition(
    joint: fx.GraphModule, joint_inputs: Sequence[Any], **arguments: Any
) -> tuple[fx.GraphModule, fx.GraphModule]:
    """Divides a joint graph by torch's default partitioner, and draws random numbers once.

    Inductor's `fallback_random` makes torch keep operators that draw although nobody reads them:
    eager draws there too. Its partitioner then copies all that draw into the backward graph, and
    refuses those of several outputs, such as `native_dropout`, that nobody reads.
    """
    for node in list(joint.graph.nodes):
        value = node.meta.get("val")
        if node.op == "call_function" and not node.users and isinstance(value, (tuple, list)):
            with joint.graph.inserting_after(node):
                first = joint.graph.call_function(operator.getitem, (node, 0))
            first.meta = {**node.meta, "val": value[0]}
    forward, backward = default_partition(joint, joint_inputs, **arguments)
    done = {node.name for node in forward.graph.nodes}
    for node in reversed(backward.graph.nodes):
        if node.name in done and not node.users and not node.is_impure(impure_random=False):
            backward.graph.erase_node(node)
    backward.recompile()
    return forward, backward


def compile_returning_tuple(
    graph_module: fx.GraphModule,
    example_inputs: Sequence[Any],
    compile_graph_module: Callable[..., Callable[..., Any]],
) -> Callable[..., Any]:
    """Compiles a graph whose output may be any pytree, where `compile_graph_module` wants a tuple.

    Args:
        graph_module: The graph; its output may be changed in place.
        example_inputs: One value for each placeholder.
        compile_graph_module: Takes a graph module and its inputs, returns a callable.

    Returns:
        A callable that returns what the graph returned.
    """
    if graph_returns_tuple(graph_module):
        return compile_graph_module(graph_module, example_inputs)
    return make_graph_return_tuple(graph_module, example_inputs, compile_graph_module)


def _callable(compiled: Any) -> Callable[..., Any]:
    """Narrows what `compile_fx` returns: anything else belongs to ahead-of-time compilation."""
    assert callable(compiled)
    return compiled


def _direction(aot_arguments: Mapping[str, Any]) -> Direction:
    if aot_arguments.get("is_backward"):
        return Direction.BACKWARD
    return Direction.INFERENCE if aot_arguments.get("is_inference") else Direction.FORWARD
