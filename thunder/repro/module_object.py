"""A live module as source, for failures that come before there is a graph.

The class is imported, or written out from its file; constructors are not called, since nobody
knows any more with what. Instead the state is set attribute by attribute, as unpickling would,
with tensors drawn from recipes.
"""

from __future__ import annotations

import ast
import enum
import inspect
import textwrap
import types
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import nn

from thunder.repro.collecting import SourceCollector, is_installed
from thunder.repro.functions import Unannotated, global_names
from thunder.repro.input_source import input_source
from thunder.repro.inputs import record_inputs
from thunder.trace.literals import qualified_name
from thunder.trace.syntax import is_name

WriteValue = Callable[[Any, SourceCollector], str]

_EXACT_FLOATS = 64
"""Tensors of up to so many elements are listed: frequencies and scales, which mean something."""

_OF_EVERY_MODULE = frozenset(vars(nn.Module()))
_HOOKS = tuple(sorted(name for name in _OF_EVERY_MODULE if name.endswith("_hooks")))
_WRITTEN_OTHERWISE = (enum.Enum, types.ModuleType, list, tuple, dict, set, str, int, float, complex)
_RESTORED = """def restored(owner, **state):
    made = owner.__new__(owner)
    made.__dict__.update(state)
    return made"""


def write_module_object(
    module: nn.Module, collector: SourceCollector, write_value: WriteValue
) -> str:
    """Writes a module down.

    Args:
        module: Any module. Its hooks, and what its class has from a closure, are gaps.
        collector: Gets the classes and a function that makes the module.
        write_value: Writes attributes.

    Returns:
        An expression that makes the module.
    """
    writer = _Writer(collector, write_value)
    variable = writer.module(module)
    tensors = writer.tensors
    recorded = record_inputs(
        list(tensors.values()), names=list(tensors), exact_floats=_EXACT_FLOATS, keep_bytes=0
    )
    source = input_source(recorded)
    for note in source.notes:
        collector.note(note)
    made = zip(tensors, (expression for _, expression in source.expressions), strict=True)
    held = [f"{name} = {expression}" for name, expression in made if expression != name]
    text = "\n".join([*source.statements, *held, *writer.statements, f"return {variable}"])
    name = f"make_{type(module).__name__}"
    if not is_name(name) or not collector.define(
        name, f"def {name}():\n{textwrap.indent(text, '    ')}"
    ):
        collector.miss(f"the module {type(module).__qualname__}, whose name is taken")
        return "None"
    return f"{name}()"


class _Writer:
    """Collects the statements that make a module, each object once."""

    def __init__(self, collector: SourceCollector, write_value: WriteValue) -> None:
        self.collector = collector
        self.write_value = write_value
        self.statements: list[str] = []
        self.tensors: dict[str, torch.Tensor] = {}
        self._names: dict[int, str] = {}
        self._being_written: set[int] = set()

    def module(self, module: nn.Module) -> str:
        """Makes a module and returns its variable."""
        if id(module) in self._names:
            return self._names[id(module)]
        count = sum(name.startswith("module_") for name in self._names.values())
        variable = self._names[id(module)] = f"module_{count}"
        owner = write_class(type(module), self.collector, self.write_value)
        say = self.statements.append
        say(f"{variable} = {owner}.__new__({owner})")
        say(f"torch.nn.Module.__init__({variable})")
        if not module.training:
            say(f"{variable}.training = False")
        if any(getattr(module, hooks, None) for hooks in _HOOKS):
            self.collector.miss(f"the hooks of a {type(module).__qualname__}")
        for name, value in vars(module).items():
            if name not in _OF_EVERY_MODULE:
                say(f"{variable}.__dict__[{name!r}] = {self.value(value)}")
        for name, tensor in module._parameters.items():
            say(f"{variable}.register_parameter({name!r}, {self.value(tensor)})")
        for name, tensor in module._buffers.items():
            kept = "" if name not in module._non_persistent_buffers_set else ", persistent=False"
            say(f"{variable}.register_buffer({name!r}, {self.value(tensor)}{kept})")
        for name, child in module._modules.items():
            made = "None" if child is None else self.module(child)
            say(f"{variable}.add_module({name!r}, {made})")
        return variable

    def value(self, value: Any) -> str:
        """Returns an expression for an attribute."""
        match value:
            case torch.Tensor():
                name = self._names.setdefault(id(value), f"tensor_{len(self.tensors)}")
                self.tensors[name] = value
                return name
            case nn.Module():
                return self.module(value)
            case list() | tuple() if type(value) in (list, tuple):
                inner = "".join(f"{self.value(element)}, " for element in value)
                return f"[{inner}]" if isinstance(value, list) else f"({inner})"
            case set() | frozenset() if type(value) in (set, frozenset):
                inner = ", ".join(sorted(self.value(element) for element in value))
                return f"{type(value).__name__}([{inner}])"
            case dict() if type(value) is dict:
                items = (f"{self.value(k)}: {self.value(v)}" for k, v in value.items())
                return "{" + ", ".join(items) + "}"
        if _is_plain_object(value):
            return self._object(value)
        return self.write_value(value, self.collector)

    def _object(self, value: Any) -> str:
        if id(value) in self._being_written:
            self.collector.miss(f"a {type(value).__qualname__} that refers to itself")
            return "None"
        self._being_written.add(id(value))
        owner = write_class(type(value), self.collector, self.write_value)
        self.collector.define("restored", _RESTORED)
        state = ", ".join(f"{name!r}: {self.value(held)}" for name, held in vars(value).items())
        self._being_written.discard(id(value))
        return f"restored({owner}, **{{{state}}})"


def write_class(owner: type, collector: SourceCollector, write_value: WriteValue) -> str:
    """Writes a class: imported where another program finds it, else from its file.

    Args:
        owner: The class.
        collector: Gets the definition, and those of what the class refers to.
        write_value: Writes the values that the class refers to.

    Returns:
        An expression; None in words, with a gap, when it has no source.
    """
    if is_installed(owner.__module__):
        imported = qualified_name(owner, collector.names)
        if imported is not None:
            return imported
    name = owner.__name__
    if name in collector.being_defined:
        return name
    methods = [value for value in vars(owner).values() if isinstance(value, types.FunctionType)]
    free = {name for method in methods for name in method.__code__.co_freevars} - {"__class__"}
    node = None if free or not is_name(name) else _definition(owner)
    if node is None:
        collector.miss(f"the class {owner.__module__}.{owner.__qualname__}")
        return "None"
    collector.being_defined.add(name)
    for used, value in _globals(owner, node):
        is_own_class = isinstance(value, type) and not is_installed(value.__module__)
        write = write_class if is_own_class else _value
        expression = write(value, collector, write_value)
        if expression != used and not collector.define(used, f"{used} = {expression}"):
            collector.miss(f"{used}, a name that means two things")
    collector.being_defined.discard(name)
    if not collector.define(name, ast.unparse(node)):
        collector.miss(f"the class {owner.__qualname__}, whose name is taken")
    return name


def _value(value: Any, collector: SourceCollector, write_value: WriteValue) -> str:
    return write_value(value, collector)


def _definition(owner: type) -> ast.ClassDef | None:
    try:
        parsed = ast.parse(textwrap.dedent(inspect.getsource(owner))).body
    except (OSError, TypeError, SyntaxError):
        return None
    if len(parsed) != 1 or not isinstance(parsed[0], ast.ClassDef):
        return None
    Unannotated(keeps_decorators=True).visit(parsed[0])
    return parsed[0]


def _globals(owner: type, node: ast.ClassDef) -> Iterator[tuple[str, Any]]:
    """Yields the global names that a class reads, and their values, sorted."""
    functions = [value for value in vars(owner).values() if isinstance(value, types.FunctionType)]
    home = functions[0].__globals__ if functions else {}
    tree = ast.fix_missing_locations(ast.Module(body=[node], type_ignores=[]))
    for name in sorted(global_names(compile(tree, "<class>", "exec"))):
        if name in home and home[name] is not owner:
            yield name, home[name]


def _is_plain_object(value: Any) -> bool:
    """Whether a value is its class and its attributes, as for pickle's default."""
    owner = type(value)
    if not hasattr(value, "__dict__") or callable(value) or isinstance(value, _WRITTEN_OTHERWISE):
        return False
    own = ("__reduce__", "__reduce_ex__", "__getstate__", "__setstate__", "__slots__")
    return all(
        name not in vars(base) for base in owner.__mro__ if base is not object for name in own
    )
