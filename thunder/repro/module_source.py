"""Any fx graph module as a class that computes the same.

Nested graph modules become classes of their own, tensors that the module holds become recipes,
and each statement stands under the user's line that it comes from. The text needs torch and what
the graph itself calls, nothing of this package.
"""

from __future__ import annotations

import builtins
import keyword
import re
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import fx

from thunder.repro.collecting import SourceCollector
from thunder.repro.higher_order import special_statements
from thunder.repro.module_state import ModuleState, module_state
from thunder.repro.process_groups import define_process_groups
from thunder.repro.statements import GraphContext, statements
from thunder.trace.copying import copy_graph
from thunder.trace.liveness import last_uses
from thunder.trace.printer import inert
from thunder.trace.source_lines import SourceLine, source_line
from thunder.trace.tensor_spec import describe

MODULE = "Module"

_RESERVED = {"torch", "self", "math", "sys", "stored", "load", "fill_in", "STORED"}
_RANDOM = re.compile(
    r"rand|dropout|bernoulli|multinomial|normal(_|$)|uniform|exponential|cauchy|geometric"
    r"|poisson|rrelu|gumbel"
)


@dataclass(frozen=True, kw_only=True, slots=True)
class ModuleSource:
    """A module as source.

    Attributes:
        construction: An expression that makes the module, after the definitions.
        text: The classes.
        imports: Import statements that it needs.
        definitions: Statements that must run before: operators, kernels, constants.
        stored: Real values of the tensors that it holds, for the file beside the script.
        precision: The coarsest floating-point dtype in the graph (float8 aside).
        is_random: Whether it draws random numbers.
        missing: What could not be written down; empty when the source is faithful.
        notes: Sentences for the reader.
    """

    construction: str = f"{MODULE}()"
    text: str
    imports: tuple[str, ...] = ()
    definitions: tuple[str, ...] = ()
    stored: Mapping[str, torch.Tensor] = field(default_factory=dict)
    precision: torch.dtype = torch.float32
    is_random: bool = False
    missing: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()

    @property
    def faithful(self) -> bool:
        """Whether nothing is missing."""
        return not self.missing


def module_source(graph_module: torch.nn.Module, *, store_values: bool = False) -> ModuleSource:
    """Prints a graph module.

    Args:
        graph_module: An `fx.GraphModule` of any origin. It is not changed.
        store_values: Whether the tensors it holds get their real values, from a dict `STORED`
            that the script must load; otherwise they are drawn, small ones listed.

    Returns:
        The source. `missing` says what has no source, such as an operator of C++.

    Example:
        >>> import torch
        >>> print(module_source(torch.fx.symbolic_trace(lambda x: x.sin() + 1)).text)
        class Module(torch.nn.Module):
            def forward(self, x):
                sin = x.sin()
                del x
                add = sin + 1
                del sin
                return add
    """
    graphs = list(_graph_modules(graph_module))
    copies = {id(module): _renamed(module.graph) for _, module in graphs}
    locals_ = {node.name for graph in copies.values() for node in graph.nodes}
    collector = SourceCollector(reserved=locals_ | _RESERVED | {MODULE})
    names = _class_names(graphs, locals_)
    extra: dict[str, str] = {}
    classes, stored = [], {}
    for _, module in reversed(graphs):
        context = GraphContext(
            graph_module=module, collector=collector, class_names=names, extra_classes=extra
        )
        state = module_state(module, copies[id(module)], context, store_values)
        known = set(extra)
        forward = list(_forward(copies[id(module)], context))
        classes += [extra[name] for name in extra if name not in known]
        classes.append("\n".join(_class(names[id(module)], state, forward)))
        stored |= state.stored
    define_process_groups([module.graph for _, module in graphs], collector)
    return ModuleSource(
        text="\n\n\n".join(classes),
        imports=collector.imports(),
        definitions=tuple(collector.definitions.values()),
        stored=stored,
        precision=_coarsest_precision(copies.values()),
        is_random=any(_is_random(node) for graph in copies.values() for node in graph.nodes),
        missing=collector.missing,
        notes=tuple(collector.notes),
    )


def _graph_modules(root: Any) -> Iterator[tuple[str, Any]]:
    """Yields a graph module and those nested in it, each once, outer ones first."""
    yield from (
        (path, module)
        for path, module in root.named_modules()
        if isinstance(module, fx.GraphModule)
    )


def _renamed(graph: fx.Graph) -> fx.Graph:
    """Returns a copy whose nodes have names that hide nothing else."""
    copied = copy_graph(graph)
    roots = {str(getattr(node.target, "__module__", "")).partition(".")[0] for node in graph.nodes}
    hidden = {*dir(builtins), *keyword.kwlist, *sys.stdlib_module_names, *_RESERVED, *roots}
    used: set[str] = set()
    for node in copied.nodes:
        stem = re.sub(r"\W", "_", node.name, flags=re.ASCII) or "_"
        stem = f"_{stem}" if stem[0].isdigit() else stem
        name, count = stem, 0
        while name in hidden or name in used:
            count += 1
            name = f"{stem}_{count}"
        used.add(name)
        node.name = name
    return copied


def _class_names(graphs: list[tuple[str, Any]], taken: set[str]) -> dict[int, str]:
    names, used = {}, {*taken, MODULE}
    for path, module in graphs:
        words = re.sub(r"\W", "_", path, flags=re.ASCII).split("_")
        stem = "".join(word[:1].upper() + word[1:] for word in words) or MODULE
        stem = f"Graph{stem}" if stem[0].isdigit() else stem
        name, count = stem, 0
        while path and name in used:
            count += 1
            name = f"{stem}{count}"
        used.add(name)
        names[id(module)] = name
    return names


def _class(name: str, state: ModuleState, forward: list[str]) -> Iterator[str]:
    yield f"class {name}(torch.nn.Module):"
    if state.statements:
        yield "    def __init__(self):"
        yield "        super().__init__()"
        yield from (f"        {statement}" for statement in state.statements)
        yield ""
    yield from forward


def _forward(graph: fx.Graph, context: GraphContext) -> Iterator[str]:
    inputs = [_parameter(node) for node in graph.nodes if node.op == "placeholder"]
    yield f"    def forward({', '.join(['self', *inputs])}):"
    dead = last_uses(graph)
    shown: SourceLine | None = None
    for node in graph.nodes:
        if node.op == "placeholder":
            continue
        if node.op == "output":
            yield f"        return {context.argument(node.args[0])}"
            return
        line = source_line(node)
        if line is not None and line != shown:
            yield f"        # {_cite(line)}"
            shown = line
        *first, last = special_statements(node, context) or statements(node, context)
        yield from (f"        {statement}" for statement in first)
        yield f"        {last}{_type_comment(node)}"
        if freed := [used.name for used in dead.get(node, ())]:
            yield f"        del {', '.join(freed)}"


def _parameter(node: fx.Node) -> str:
    stars = re.match(r"\**", str(node.target))
    return f"{stars[0] if stars else ''}{node.name}"


def _cite(line: SourceLine) -> str:
    code = f", code: {line.code}" if line.code else ""
    return inert(f"File: {line.file}:{line.line} in {line.function}{code}")


def _type_comment(node: fx.Node) -> str:
    value = node.meta.get("val", node.meta.get("example_value"))
    return "" if value is None else f"  # {inert(describe(value))}"


def _values(node: fx.Node) -> Iterator[torch.Tensor]:
    pending = [node.meta.get("val", node.meta.get("example_value"))]
    while pending:
        match pending.pop():
            case torch.Tensor() as tensor:
                yield tensor
            case list() | tuple() as several:
                pending += several


def _coarsest_precision(graphs: Any) -> torch.dtype:
    found = {
        tensor.dtype
        for graph in graphs
        for node in graph.nodes
        for tensor in _values(node)
        if tensor.dtype.is_floating_point and tensor.dtype.itemsize > 1
    }
    return max(found, key=lambda dtype: torch.finfo(dtype).eps, default=torch.float32)


def _is_random(node: fx.Node) -> bool:
    if torch.Tag.nondeterministic_seeded in getattr(node.target, "tags", ()):
        return True
    name = node.target if isinstance(node.target, str) else getattr(node.target, "__name__", "")
    return node.op.startswith("call") and bool(_RANDOM.search(str(name)))
