"""What a graph module holds, as the statements of a constructor.

Parameters, buffers and constants are drawn from recipes or taken from stored values; nested graph
modules are made of their classes; modules of `torch.nn` by their constructors.
"""

from __future__ import annotations

import ast
import operator
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import fx

from thunder.repro.input_source import input_source, stored_tensors
from thunder.repro.inputs import record_inputs
from thunder.repro.statements import GraphContext
from thunder.trace.syntax import attribute, is_attribute, is_name

_EXACT_FLOATS = 1024
_BODIES = {
    "associative_scan": "torch.fx.symbolic_trace({})",
    "scan": "torch.fx.symbolic_trace({})",  # Dynamo takes these two with fx graphs only
    "invoke_subgraph": "torch.compiler.nested_compile_region({})",
}
"""How the nested graphs in the arguments of some higher-order operators are made."""


@dataclass(frozen=True, kw_only=True, slots=True)
class ModuleState:
    """Statements of a constructor.

    Attributes:
        statements: The statements, without the call of the base class.
        stored: Real values of tensors, by the names under which the statements look for them.
    """

    statements: tuple[str, ...]
    stored: Mapping[str, torch.Tensor]


def module_state(
    graph_module: torch.nn.Module,
    graph: fx.Graph,
    context: GraphContext,
    store_values: bool,
) -> ModuleState:
    """Prints what a graph refers to by attributes.

    Args:
        graph_module: The module.
        graph: Its graph.
        context: Gets imports and gaps; knows the classes of nested graph modules.
        store_values: Whether real values are looked up in the dict of stored tensors.
    """
    paths = dict.fromkeys(
        str(node.target) for node in graph.nodes if node.op in ("get_attr", "call_module")
    )
    writer = _StateWriter(graph_module, context, _special_bodies(graph))
    for path in paths:
        writer.hold(path)
    tensors = writer.tensors
    prefix = f"{context.class_names[id(graph_module)]}_"
    recorded = record_inputs(
        list(tensors.values()),
        names=[f"tensor_{index}" for index in range(len(tensors))],
        exact_floats=_EXACT_FLOATS,
        keep_bytes=0,
    )
    stored = stored_tensors(recorded, prefix=prefix) if store_values else None
    source = input_source(recorded, stored=stored.tensors if stored else (), prefix=prefix)
    statements = list(source.statements)
    if stored and any("stored[" in statement for statement in statements):
        statements.insert(0, "stored = load(STORED)")
    for (owner, name), (_, made) in zip(tensors, source.expressions, strict=True):
        statements.append(_hold_tensor(owner, name, made, tensors[owner, name]))
    for note in (*source.notes, *(stored.notes if stored else ())):
        context.collector.note(note)
    return ModuleState(
        statements=(*writer.statements, *statements, *writer.aliases),
        stored={k: v for k, v in stored.tensors.items() if "random" not in k} if stored else {},
    )


class _StateWriter:
    """Collects what to make, each object once; second names come last, as `aliases`."""

    def __init__(
        self, graph_module: torch.nn.Module, context: GraphContext, bodies: Mapping[str, str]
    ) -> None:
        self.graph_module = graph_module
        self.context = context
        self.bodies = bodies
        self.statements: list[str] = []
        self.aliases: list[str] = []
        self.tensors: dict[tuple[str, str], torch.Tensor] = {}
        self._held: dict[int, str] = {}
        self._paths: set[str] = set()

    def hold(self, path: str) -> None:
        """Makes the object at a path, and the modules on the way to it."""
        *parents, _ = path.split(".")
        for depth in range(1, len(parents) + 1):
            self._hold_one(".".join(parents[:depth]), is_container=True)
        self._hold_one(path, is_container=False)

    def _hold_one(self, path: str, *, is_container: bool) -> None:
        if path in self._paths:
            return
        self._paths.add(path)
        parent, _, name = path.rpartition(".")
        owner = attribute("self", parent) if parent else "self"
        try:
            value = operator.attrgetter(path)(self.graph_module)
        except AttributeError:
            what = f"{path}, which the graph refers to and its module does not hold"
            self.context.collector.miss(what)
            self.statements.append(_assign(owner, name, f"fill_in({what!r})"))
            return
        if id(value) in self._held:
            self.aliases.append(_assign(owner, name, self._held[id(value)]))
            return
        self._held[id(value)] = attribute("self", path)
        if isinstance(value, torch.Tensor):
            self.tensors[owner, name] = value
        elif is_container and _construction(value) is None:
            self.statements.append(_assign(owner, name, "torch.nn.Module()"))
        else:
            self.statements.append(_assign(owner, name, self._made(value, path)))
            self._hold_tensors_of(value, attribute("self", path))

    def _made(self, value: Any, path: str) -> str:
        if isinstance(value, fx.GraphModule):
            made = f"{self.context.class_names[id(value)]}()"
            return self.bodies.get(path, "{}").format(made)
        if not isinstance(value, torch.nn.Module):
            return self.context.argument(value)
        if construction := _construction(value):
            mode = "" if value.training else ".eval()"
            return f"{construction}{mode}"
        what = f"the module {type(value).__module__}.{type(value).__qualname__} at {path}"
        self.context.collector.miss(what)
        return f"fill_in({what!r})"

    def _hold_tensors_of(self, value: Any, owner: str) -> None:
        if isinstance(value, fx.GraphModule) or not isinstance(value, torch.nn.Module):
            return
        for name, tensor in _own_tensors(value):
            *inner, last = name.split(".")
            place = attribute(owner, ".".join(inner)) if inner else owner
            if id(tensor) in self._held:
                self.aliases.append(_assign(place, last, self._held[id(tensor)]))
            else:
                self._held[id(tensor)] = attribute(place, last)
                self.tensors[place, last] = tensor


def _special_bodies(graph: fx.Graph) -> dict[str, str]:
    """Returns how nested graphs are made that are not simply made, by attribute."""
    return {
        str(node.target): _BODIES[name]
        for node in graph.find_nodes(op="get_attr")
        for user in node.users
        if (name := getattr(user.target, "__name__", "")) in _BODIES
    }


def _own_tensors(module: torch.nn.Module) -> Iterator[tuple[str, torch.Tensor]]:
    yield from module.named_parameters(remove_duplicate=False)
    yield from module.named_buffers(remove_duplicate=False)


def _construction(value: Any) -> str | None:
    """Returns how to make a module of `torch.nn` that says so by its repr; None for others.

    What stands in a repr is the user's: only a call with literals counts.
    """
    owner = type(value)
    if getattr(torch.nn, owner.__name__, None) is not owner:
        return None
    try:
        call = ast.parse(repr(value), mode="eval").body
        if not isinstance(call, ast.Call) or ast.unparse(call.func) != owner.__name__:
            return None
        arguments = [ast.literal_eval(argument) for argument in call.args]
        keywords = {str(k.arg): ast.literal_eval(k.value) for k in call.keywords}
        with torch.device("meta"):
            twin = owner(*arguments, **keywords)
    except (AttributeError, SyntaxError, TypeError, ValueError, RuntimeError):
        return None
    return f"torch.nn.{ast.unparse(call)}" if _shapes(twin) == _shapes(value) else None


def _shapes(module: torch.nn.Module) -> dict[str, tuple[int, ...]]:
    return {name: tuple(tensor.shape) for name, tensor in module.state_dict().items()}


def _assign(owner: str, name: str, made: str) -> str:
    if is_attribute(name):
        return f"{owner}.{name} = {made}"
    return f"setattr({owner}, {name!r}, {made})"


def _hold_tensor(owner: str, name: str, made: str, tensor: torch.Tensor) -> str:
    if isinstance(tensor, torch.nn.Parameter):
        return _assign(owner, name, made)
    if is_name(name):
        return f"{owner}.register_buffer({name!r}, {made})"
    return _assign(owner, name, made)
