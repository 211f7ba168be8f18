"""Prints a graph as a Python program.

The program has one main function: a comment for each line of the user's source, a statement for
each node with the type of its value, `del` after the last use. A fusion region is one call, with
its body as comments. What the main function refers to (fusion regions, nested graphs, small
constants) is defined below it, in plain ATen operators, so that the program runs by itself.
"""

from __future__ import annotations

import operator
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

import torch
from torch import fx
from torch.utils._python_dispatch import _disable_current_modes

from thunder.trace.literals import Names, literal, qualified_name
from thunder.trace.liveness import last_uses
from thunder.trace.source_lines import SourceLine, source_line
from thunder.trace.syntax import attribute, call_arguments
from thunder.trace.targets import CLAIM, ORIGIN, ClaimedOperator, FusedRegion
from thunder.trace.tensor_spec import describe

_INDENT = "    "
_MAX_LITERAL_ELEMENTS = 1024
_CONTROL = re.compile(r"[\x00-\x1f\x7f]")
_ENCODING = re.compile(r"coding([:=])(?=[ \t]*[-\w.])")
"""What Python takes for the encoding of a file in a comment of its first two lines (PEP 263)."""


@dataclass(frozen=True, slots=True)
class Program:
    """A printed graph.

    Attributes:
        main: The main function alone.
        names: The imports and objects that the main function refers to.
    """

    main: str
    names: Names


@dataclass(frozen=True, slots=True)
class PrintedLine:
    """One line of a printed main function.

    Attributes:
        text: The line, without its end.
        node: The node it belongs to; of a line in a fusion's body, the node there. None in the
            signature.
        region: The fusion region that it calls or describes, or None.
    """

    text: str
    node: fx.Node | None = None
    region: FusedRegion | None = None


def print_function(
    graph_module: fx.GraphModule, *, name: str, frees: bool = False, boxed: bool = False
) -> Program:
    """Prints the main function of a graph.

    Args:
        graph_module: The graph; `meta["val"]` or `meta["example_value"]` give the types.
        name: Name of the function.
        frees: Write `del` after the last use of each value.
        boxed: The function takes one list and clears it, so that inputs can be freed.
    """
    writer = _Writer(graph_module, Names(reserved=_local_names(graph_module)))
    main = "\n".join(writer.function(name, frees=frees, boxed=boxed))
    return Program(main=main, names=writer.names)


def print_lines(
    graph_module: fx.GraphModule, *, name: str, frees: bool = False
) -> list[PrintedLine]:
    """Prints the main function of a graph, and says which node each line belongs to.

    Args:
        graph_module: The graph.
        name: Name of the function.
        frees: Write `del` after the last use of each value.
    """
    writer = _Writer(graph_module, Names(reserved=_local_names(graph_module)))
    return list(writer.lines(name, frees=frees))


def print_program(
    graph_module: fx.GraphModule, *, name: str, header: Iterable[str] = (), frees: bool = False
) -> str:
    """Prints a graph as a complete program.

    Args:
        graph_module: The graph.
        name: Name of the main function.
        header: Lines of comment for the top.
        frees: Write `del` after the last use of each value.

    Returns:
        The program. What has no source is marked in it as a place to fill in.
    """
    writer = _Writer(graph_module, Names(reserved=_local_names(graph_module)))
    main = list(writer.function(name, frees=frees))
    definitions = list(writer.definitions())
    lines = [f"# {inert(line)}" for line in header]
    lines += [f"import {module}" for module in writer.names.imported()]
    lines += ["", "", *main]
    if definitions:
        lines += ["", "", "# What the names above stand for when this program is run by itself."]
        lines += definitions
    return "\n".join(lines) + "\n"


class _Writer:
    """Writes the main function of one graph and collects what it refers to."""

    def __init__(
        self, graph_module: fx.GraphModule, names: Names, *, in_region: bool = False
    ) -> None:
        self.graph_module = graph_module
        self.in_region = in_region
        self.names = names
        self.nodes = list(graph_module.graph.nodes)
        self.inputs = [node for node in self.nodes if node.op == "placeholder"]
        self.unpacked: set[fx.Node] = set()
        self.bodies: dict[FusedRegion, list[fx.Node]] = {}

    def function(
        self, name: str, *, frees: bool = False, boxed: bool = False, comments: bool = True
    ) -> Iterator[str]:
        """Yields the lines of the function."""
        lines = self.lines(name, frees=frees, boxed=boxed, comments=comments)
        yield from (line.text for line in lines)

    def lines(
        self, name: str, *, frees: bool = False, boxed: bool = False, comments: bool = True
    ) -> Iterator[PrintedLine]:
        """Yields the lines of the function with the nodes they belong to."""
        yield from map(PrintedLine, _signature(name, self.inputs, boxed=boxed, comments=comments))
        unused = [node.name for node in self.inputs if not node.users]
        if unused and boxed:
            yield PrintedLine(f"{_INDENT}del {', '.join(unused)}")
        dead = last_uses(self.graph_module.graph) if frees else {}
        for node, lines in self.statements(comments=comments):
            yield from self.attributed(node, lines)
            freed = [used.name for used in dead.get(node, ()) if not _is_bare(used)]
            if freed and node.op != "output":
                yield PrintedLine(f"{_INDENT}del {', '.join(freed)}", node)

    def attributed(self, node: fx.Node, lines: list[str]) -> Iterator[PrintedLine]:
        """Yields a statement's lines with their nodes; those of a fusion's body end it."""
        region = node.target if isinstance(node.target, FusedRegion) else None
        body = self.bodies.get(region, []) if region else []
        owners = [node] * (len(lines) - len(body)) + body
        yield from (PrintedLine(*pair, region) for pair in zip(lines, owners, strict=True))

    def statements(self, *, comments: bool) -> Iterator[tuple[fx.Node, list[str]]]:
        """Yields each node with its lines, those of its source comment before them."""
        shown: SourceLine | None = None
        for node in self.nodes:
            if node.op == "placeholder" or node in self.unpacked:
                continue
            lines: list[str] = []
            line = source_line(node) if comments else None
            if line is not None and line != shown:
                lines.append(f"{_INDENT}# {inert(str(line))}")
                shown = line
            lines += self.statement(node, comments=comments)
            yield node, lines

    def statement(self, node: fx.Node, *, comments: bool) -> Iterator[str]:
        """Yields the lines for one node."""
        if node.op == "output":
            if comments:
                yield from _origins_of_results(node)
            yield f"{_INDENT}return {literal(node.args[0], self.names)}"
            return
        if _is_bare(node):
            yield f"{_INDENT}{self.expression(node)}"
            return
        outputs = _unpacking(node)
        if outputs is None:
            target, note = node.name, f"  # {node.name}: {_quoted_type(node)}{self.claim(node)}"
        else:
            self.unpacked.update(outputs)
            target = ", ".join(output.name for output in outputs)
            target, note = f"{target}," if len(outputs) == 1 else target, ""
        yield f"{_INDENT}{target} = {self.expression(node)}{note if comments else ''}"
        if comments and isinstance(node.target, FusedRegion):
            yield from self.body_comments(node.target, outputs or ())

    def claim(self, node: fx.Node) -> str:
        """Returns who runs a node and who declined it; within a region only the latter."""
        claim = node.meta.get(CLAIM)
        if claim is None or node.target is operator.getitem:
            return ""
        owner = "" if self.in_region else f", by {claim.executor}"
        refused = "; ".join(f"{who} declined: {why}" for who, why in claim.refusals)
        return f"{inert(owner)} ({inert(refused)})" if refused else inert(owner)

    def body_comments(self, region: FusedRegion, outputs: Iterable[fx.Node]) -> Iterator[str]:
        """Yields a fusion's outputs and body as comments."""
        for output in outputs:
            yield f"{_INDENT}#   {output.name}: {_quoted_type(output)}"
        for note in region.notes:
            yield f"{_INDENT}#   {inert(note)}"
        yield f"{_INDENT}# {inert(f'{region.name} is, compiled by {region.executor}:')}"
        body = _Writer(region.graph_module, self.names, in_region=True)
        self.bodies[region] = []
        for node, lines in body.statements(comments=True):
            self.bodies[region] += [node] * len(lines)
            yield from (f"{_INDENT}#{line}" for line in lines)

    def expression(self, node: fx.Node) -> str:
        """Returns the right-hand side for a node."""
        if node.op == "get_attr":
            return self.attribute(node)
        arguments = [literal(argument, self.names) for argument in node.args]
        keywords = {key: literal(value, self.names) for key, value in node.kwargs.items()}
        match node.op, node.target:
            case "call_method", str(method):
                owner, *arguments = arguments
                called = attribute(owner, method)
            case "call_module", _:
                called = self.attribute(node)
            case _, operator.getitem:
                return f"{arguments[0]}[{arguments[1]}]"
            case _, FusedRegion() | ClaimedOperator() as target:
                called = self.names.bind(target.name, target)
            case _:
                called = literal(node.target, self.names)
        return f"{called}({call_arguments(arguments, keywords)})"

    def attribute(self, node: fx.Node) -> str:
        """Returns the name of what a node takes from the graph module."""
        path = str(node.target)
        value = operator.attrgetter(path)(self.graph_module)
        stem = "graph" if isinstance(value, fx.GraphModule) else "constant"
        return self.names.bind(f"{stem}_{path.strip('_')}", value)

    def definitions(self) -> Iterator[str]:
        """Yields definitions of everything that was bound to a name; these may bind more."""
        defined: set[str] = set()
        while pending := [name for name in self.names.objects if name not in defined]:
            for name in pending:
                defined.add(name)
                yield from ("", *self.definition(name, self.names.objects[name]))

    def definition(self, name: str, value: Any) -> Iterator[str]:
        """Yields the definition of one bound object."""
        match value:
            case FusedRegion():
                yield from (
                    "",
                    *_Writer(value.graph_module, self.names).function(name, comments=False),
                )
            case fx.GraphModule():
                yield from (
                    "",
                    *_Writer(value, self.names).function(f"{name}_function", comments=False),
                )
                yield from ("", "", f"{name} = torch.fx.symbolic_trace({name}_function)")
            case ClaimedOperator():
                yield from self._claimed_operator(name, value)
            case torch.Tensor() if value.numel() <= _MAX_LITERAL_ELEMENTS and _plain(value):
                yield f"{name} = {self._tensor(value)}"
            case torch._ops.HigherOrderOperator():
                module = type(value).__module__
                yield f"{name} = None  # {inert(f'a higher-order operator of {module}; import it')}"
            case torch.Tensor():
                yield f"# {describe(value)}: too large to print; save it with torch.save"
                yield f"{name} = None"
            case _:
                kind = type(value).__qualname__
                yield f"{name} = None  # {inert(f'FILL IN: a {kind} that has no source')}"

    def _claimed_operator(self, name: str, value: ClaimedOperator) -> Iterator[str]:
        written = qualified_name(value.implementation, self.names)
        if written is None:
            written = literal(value.operator, self.names)
            yield f"# {inert(f'stands in for the operator of executor {value.executor!r}')}"
        yield f"{name} = {written}"

    def _tensor(self, value: torch.Tensor) -> str:
        with _disable_current_modes():  # a trace may be printed while something is being traced
            data = literal(value.detach().cpu().tolist(), self.names)
        device = "" if value.device.type == "cpu" else f", device={str(value.device)!r}"
        return f"torch.tensor({data}, dtype={value.dtype}{device})"


def inert(text: str) -> str:
    r"""Makes text safe to stand in a one-line comment.

    What Python would take for the end of the line, or for the encoding of the file, goes.

    Args:
        text: Any text.

    Example:
        >>> print(inert("a name:\nimport os"))
        a name: import os
    """
    line = " ".join(text.split()).encode("ascii", "backslashreplace").decode()
    line = _CONTROL.sub(lambda found: f"\\x{ord(found[0]):02x}", line)
    return _ENCODING.sub(r"coding \1", line)


def _signature(name: str, inputs: list[fx.Node], *, boxed: bool, comments: bool) -> Iterator[str]:
    if boxed:
        yield f"def {name}(arguments):"
        if inputs:
            unpacked = "".join(f"{node.name}, " for node in inputs).rstrip()
            yield f"{_INDENT}{unpacked} = arguments"
        yield f"{_INDENT}arguments.clear()"
    elif comments and inputs:
        yield f"def {name}("
        for node in inputs:
            origin = node.meta.get(ORIGIN)
            note = f", {inert(origin)}" if origin else ""
            yield f"{_INDENT}{node.name},  # {_quoted_type(node)}{note}"
        yield "):"
    else:
        yield f"def {name}({', '.join(node.name for node in inputs)}):"


def _origins_of_results(output: fx.Node) -> Iterator[str]:
    """Yields what each returned value is in the user's program, where it is known."""
    values, origins = output.args[0], output.meta.get(ORIGIN, ())
    if isinstance(values, tuple | list) and len(values) == len(origins):
        for value, origin in zip(values, origins, strict=True):
            if isinstance(value, fx.Node) and origin:
                yield f"{_INDENT}# {value.name}: {inert(origin)}"


def _unpacking(node: fx.Node) -> list[fx.Node] | None:
    """The nodes that take a fusion's outputs apart, when there is one for each output."""
    if not isinstance(node.target, FusedRegion):
        return None
    outputs = {user.args[1]: user for user in node.users if user.target is operator.getitem}
    in_order = [outputs[index] for index in range(len(node.users)) if index in outputs]
    return in_order if in_order and len(in_order) == len(node.users) else None


def _is_bare(node: fx.Node) -> bool:
    """Whether a node's statement gives its value no name: there is none, as of an assertion."""
    return not node.users and node.op != "placeholder" and _value(node) is None


def _value(node: fx.Node) -> Any:
    return node.meta.get("val", node.meta.get("example_value"))


def _quoted_type(node: fx.Node) -> str:
    return f'"{inert(describe(_value(node)))}"'


def _plain(value: torch.Tensor) -> bool:
    return (
        type(value) in (torch.Tensor, torch.nn.Parameter)
        and not value.is_meta
        and (value.layout is torch.strided)
    )


def _local_names(graph_module: fx.GraphModule) -> Iterator[str]:
    """The names of all local variables, those of nested graphs included."""
    for node in graph_module.graph.nodes:
        yield node.name
        if isinstance(node.target, FusedRegion):
            yield from _local_names(node.target.graph_module)
    for child in graph_module.children():
        if isinstance(child, fx.GraphModule):
            yield from _local_names(child)
