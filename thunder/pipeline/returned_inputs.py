"""Works around wrong results of AOTAutograd before torch 2.13; leaves newer releases alone.

When an input is changed in place and shares memory with another input, AOTAutograd compiles for
the memory instead, its "synthetic base". Where the changed input is also returned, as `x.neg_()`
does, it hands out that base: a tensor of another shape, with other numbers. So what compiles here
does not return it, and the caller gets the input itself, which is what eager gives.
See `create_synthetic_base_metadata` in `torch/_functorch/_aot_autograd/input_output_analysis.py`.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import fx

_FIRST_RIGHT_RELEASE = (2, 13)


def compile_without_returned_inputs(
    graph_module: fx.GraphModule,
    compile_graph_module: Callable[[], Callable[..., Any]],
    version: str = torch.__version__,
) -> Callable[..., Any]:
    """Compiles a graph that does not return those inputs that share memory with others.

    Args:
        graph_module: A torch-level graph whose nodes have Dynamo's `example_value`; it is changed.
        compile_graph_module: Compiles it as it then is.
        version: The release of torch that compiles it.

    Returns:
        A function of the placeholders' values that returns what the graph returned.

    Example:
        >>> from torch import fx
        >>> from thunder.pipeline.returned_inputs import compile_without_returned_inputs
        >>> memory = torch.ones(2, 3)
        >>> graph = fx.Graph()
        >>> whole, row = graph.placeholder("whole"), graph.placeholder("row")
        >>> changed = graph.call_method("neg_", (row,))
        >>> _ = graph.output((changed,))
        >>> whole.meta["example_value"] = memory
        >>> row.meta["example_value"] = changed.meta["example_value"] = memory[0]
        >>> module = fx.GraphModule({}, graph)
        >>> run = compile_without_returned_inputs(module, lambda: module, version="2.11.0")
        >>> module.graph.output_node().args, run(memory, memory[0])
        (((),), (tensor([-1., -1., -1.]),))
    """
    release = re.match(r"(\d+)\.(\d+)", version)
    if release and tuple(map(int, release.groups())) >= _FIRST_RIGHT_RELEASE:
        return compile_graph_module()
    output = graph_module.graph.output_node()
    results = output.args[0]
    if not isinstance(results, tuple | list):
        return compile_graph_module()
    returned = _returned_inputs(graph_module.graph, results)
    if not returned:
        return compile_graph_module()
    output.args = (tuple(x for i, x in enumerate(results) if i not in returned),)
    graph_module.recompile()
    run, count = compile_graph_module(), len(results)

    def run_and_return_inputs(*inputs: Any) -> tuple[Any, ...]:
        computed = iter(run(*inputs))
        return tuple(inputs[returned[i]] if i in returned else next(computed) for i in range(count))

    return run_and_return_inputs


def _returned_inputs(graph: fx.Graph, results: Any) -> Mapping[int, int]:
    """Which results are changed inputs that share memory: position to position of the input."""
    values = [node.meta.get("example_value") for node in graph.find_nodes(op="placeholder")]
    memories = [_memory(value) for value in values]
    counts = Counter(memories)
    positions = {
        id(value): index
        for index, (value, memory) in enumerate(zip(values, memories, strict=True))
        if memory is not None and counts[memory] > 1
    }
    return {
        index: positions[key]
        for index, node in enumerate(results)
        if isinstance(node, fx.Node) and (key := id(node.meta.get("example_value"))) in positions
    }


def _memory(value: Any) -> int | None:
    """A key of the memory that a tensor lies in, or None for what has no memory."""
    if not isinstance(value, torch.Tensor):
        return None
    try:
        return value.untyped_storage()._cdata
    except (NotImplementedError, RuntimeError):  # a wrapper, or a layout without storage
        return None
