"""Triton kernels of the user's, written into a script with what they refer to.

A graph holds such a kernel as a number in a table of torch's. A script gets the kernel's source
and launches it as the user did. The one place of this package that knows Triton's objects.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping
from typing import Any

from torch import fx
from torch._higher_order_ops.triton_kernel_wrap import kernel_side_table

from thunder.repro.collecting import SourceCollector
from thunder.repro.statements import GraphContext
from thunder.trace.syntax import is_dotted_name


def kernel_launch(node: fx.Node, context: GraphContext) -> Iterator[str]:
    """Yields the statement that launches a kernel.

    Args:
        node: A call of `triton_kernel_wrapper_mutation`.
        context: The graph around it.
    """
    options: Any = node.kwargs
    kernel = kernel_side_table.get_kernel(options["kernel_idx"])
    constants = kernel_side_table.get_constant_args(options["constant_args_idx"])
    name = define_kernel(kernel, context.collector)
    if options.get("tma_descriptor_metadata"):
        context.collector.miss(f"the TMA descriptors of the Triton kernel {name}")
    grid = _grid(kernel, [tuple(grid) for grid in options["grid"]])
    arguments = context.arguments([], {**options["kwargs"], **constants})
    yield f"{name}[{grid}]({arguments})"
    yield f"{node.name} = None"


def _grid(kernel: Any, grids: list[tuple[Any, ...]]) -> str:
    """Returns the grid, chosen by the meta-parameters where a tuned kernel has several."""
    configurations = getattr(kernel, "configs", ())
    if len(set(grids)) == 1 or len(grids) != len(configurations):
        return repr(grids[0])
    names = sorted({name for configuration in configurations for name in configuration.kwargs})
    by_parameters = {
        tuple(configuration.kwargs.get(name) for name in names): grid
        for configuration, grid in zip(configurations, grids, strict=True)
    }
    parameters = "".join(f"meta[{name!r}], " for name in names).strip()
    return f"lambda meta: {by_parameters!r}[{parameters}]"


def define_kernel(kernel: Any, collector: SourceCollector) -> str:
    """Defines a kernel in a script, and the kernels and constants that it uses.

    Args:
        kernel: A jitted function of Triton's, or one that is autotuned.
        collector: Gets the definition, or what is missing of it.

    Returns:
        The kernel's name in the script.
    """
    function, decorators = kernel, []
    while not hasattr(function, "src"):
        decorators.append(_decorator(function, collector))
        function = function.fn
    name = function.__name__.rpartition(".")[2]
    if name in collector.definitions:
        return name
    collector.names.modules |= {"triton", "triton.language"}
    collector.define("tl", "tl = triton.language")
    source = function.src if function.src.lstrip().startswith("def ") else f"def {function.src}"
    for used, value in _used(source, function.fn.__globals__):
        if used not in ("tl", "triton", name):
            _define_used(used, value, collector)
    marked = [decorator for decorator in decorators if decorator]
    collector.define(name, "\n".join([*marked, "@triton.jit", source.strip()]))
    return name


def _decorator(tuner: Any, collector: SourceCollector) -> str:
    """Returns what made an autotuner out of a kernel; the configuration is chosen anew."""
    configurations = getattr(tuner, "configs", None)
    if configurations is None:
        collector.miss(f"the {type(tuner).__name__} around a Triton kernel")
        return ""
    listed = ", ".join(
        f"triton.Config({config.kwargs!r}, num_warps={config.num_warps}, "
        f"num_stages={config.num_stages})"
        for config in configurations
    )
    return f"@triton.autotune(configs=[{listed}], key={list(getattr(tuner, 'keys', []))!r})"


def _used(source: str, namespace: Mapping[str, Any]) -> list[tuple[str, Any]]:
    tree = ast.parse(source)
    names = {node.id for node in ast.walk(tree) if isinstance(node, ast.Name)}
    return [(name, namespace[name]) for name in sorted(names) if name in namespace]


def _define_used(name: str, value: Any, collector: SourceCollector) -> None:
    constant = getattr(value, "value", None)
    if hasattr(value, "src"):
        define_kernel(value, collector)
    elif type(value).__name__ == "constexpr" and isinstance(constant, bool | int | float | str):
        collector.define(name, f"{name} = tl.constexpr({constant!r})")
    elif isinstance(value, bool | int | float | str):
        collector.define(name, f"{name} = {value!r}")
    elif _is_of_triton(value):
        collector.names.modules.add(value.__module__)
        collector.define(name, f"{name} = {value.__module__}.{value.__name__}")
    else:
        collector.miss(f"{name}, which a Triton kernel uses")


def _is_of_triton(value: Any) -> bool:
    path = f"{getattr(value, '__module__', '')}.{getattr(value, '__name__', '')}"
    return is_dotted_name(path) and path.partition(".")[0] == "triton"
