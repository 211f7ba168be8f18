"""Values of a program as source: options, arguments, constants.

What can be imported is imported. What the program itself defines is written out when it stands on
its own feet; a gap is marked otherwise, never guessed at. Functions have a module of their own.
"""

from __future__ import annotations

import dataclasses
import functools
import operator
import sys
import types
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, runtime_checkable

import torch
import torch._dynamo.utils

from thunder.repro.collecting import SourceCollector, is_installed
from thunder.repro.dtensor_calls import method_call
from thunder.repro.functions import define_function
from thunder.repro.imported_modules import write_module
from thunder.repro.process_groups import write_distributed
from thunder.repro.recipes import Exactly, Target
from thunder.trace.literals import Names, class_name, literal, qualified_name
from thunder.trace.syntax import attribute, call_arguments, is_name

_EXACT_ELEMENTS = 1024

_NUMPY_WRAPPERS = {
    torch._dynamo.utils.numpy_to_tensor_wrapper: "f",
    torch._dynamo.utils.numpy_method_wrapper: "method",
    torch._dynamo.utils.numpy_operator_wrapper: "op",
}
"""What Dynamo's graphs call for NumPy's functions, and the argument that made each."""


@runtime_checkable
class SaysHowItWasMade(Protocol):
    """An object whose class, called with `constructor_arguments()`, gives an equal one.

    A transform or an executor that has this method can be written into a script.
    """

    def constructor_arguments(self) -> Mapping[str, Any]:
        """Returns the keyword arguments for the class."""
        ...


@dataclass(frozen=True, kw_only=True, slots=True)
class ValueSource:
    """A value as source.

    Attributes:
        expression: The expression.
        imports: Import statements that it needs.
        definitions: Statements that must run before it.
        missing: What could not be written down; empty when the value is faithful.
        notes: Sentences for the reader.
    """

    expression: str
    imports: tuple[str, ...] = ()
    definitions: tuple[str, ...] = ()
    missing: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()

    @property
    def faithful(self) -> bool:
        """Whether the expression gives the value itself, without gaps."""
        return not self.missing


def value_source(value: Any) -> ValueSource:
    """Writes a value down.

    Args:
        value: Anything: numbers, strings, containers, dtypes, functions, transforms.

    Returns:
        The source. Where a part has none, its place holds None (an element of a list or tuple
        is left out), a comment says `FILL IN`, and `missing` names it.

    Example:
        >>> import operator
        >>> source = value_source([1, float("inf"), operator.neg])
        >>> source.expression, source.imports
        ("[1, float('inf'), operator.neg]", ('import operator', 'import torch'))
        >>> value_source({"x": object()}).missing
        ('a builtins.object',)
    """
    collector = SourceCollector()
    expression = write_value(value, collector)
    return ValueSource(
        expression=expression,
        imports=collector.imports(),
        definitions=tuple(collector.definitions.values()),
        missing=collector.missing,
        notes=tuple(collector.notes),
    )


def write_value(value: Any, collector: SourceCollector) -> str:
    """Returns an expression for a value; what it needs goes to the collector.

    Args:
        value: Anything.
        collector: Gets imports, definitions and gaps. An object that cannot even be looked at is a
            gap as well.
    """
    attempt = collector.fork()
    try:
        written = _write(value, attempt)
    except Exception as error:  # noqa: BLE001 (the fence around what users' objects do when asked)
        kind = f"{type(value).__module__}.{type(value).__qualname__}"
        return _gap(f"a {kind}, which raises {type(error).__name__} when looked at", collector)
    collector.take(attempt)
    return written


def _write(value: Any, collector: SourceCollector) -> str:
    if type(value) in (list, tuple):
        return _sequence(value, collector)
    if isinstance(value, Mapping) and type(value) in (dict, types.MappingProxyType):
        items = (
            f"{write_value(key, collector)}: {write_value(item, collector)}"
            for key, item in value.items()
        )
        return "{" + ", ".join(items) + "}"
    if isinstance(value, types.ModuleType):
        return write_module(value, collector) or _gap(f"the module {value.__name__}", collector)
    if isinstance(value, types.FunctionType) and not is_installed(value.__module__):
        return _program_function(value, collector)
    known = write_distributed(value, collector) or _by_construction(value, collector)
    if known is not None:
        return known
    return _literal(value, collector)


def _sequence(value: Sequence[Any], collector: SourceCollector) -> str:
    parts, gaps = [], []
    for element in value:
        fork = collector.fork()
        expression = write_value(element, fork)
        new = fork.gaps[len(collector.gaps) :]
        collector.take(fork)
        if new and expression == "None":
            gaps += [f"    # FILL IN: {what}" for what in new]
        else:
            parts.append(expression)
    opening, closing = "[]" if isinstance(value, list) else "()"
    inner = ", ".join(parts) + ("," if len(parts) == 1 and closing == ")" else "")
    if not gaps:
        return f"{opening}{inner}{closing}"
    return "\n".join([opening, *gaps, *([f"    {inner}"] if inner else []), closing])


def _program_function(function: types.FunctionType, collector: SourceCollector) -> str:
    name = define_function(function, collector, write_value)
    if name is not None:
        return name
    imported = qualified_name(function, collector.names)
    if imported is not None:
        return imported
    return _gap(f"the function {function.__module__}.{function.__qualname__}", collector)


def _gap(what: str, collector: SourceCollector) -> str:
    collector.miss(what)
    return "None"


def _by_construction(value: Any, collector: SourceCollector) -> str | None:
    """Writes what says by itself how it was made."""
    match value:
        case functools.partial():
            collector.names.modules.add("functools")
            positional = (value.func, *value.args)
            return _call("functools.partial", positional, value.keywords, collector)
        case types.FunctionType() if (call := method_call(value)) is not None:
            collector.names.modules.add("operator")
            positional = (call.method, *call.positional)
            return _call("operator.methodcaller", positional, call.keywords, collector)
        case types.MethodType() if not isinstance(value.__self__, type | types.ModuleType):
            owner = write_value(value.__self__, collector)
            return None if owner == "None" else attribute(owner, value.__name__)
        case type():
            return None
        case _ if type(value) in _NUMPY_WRAPPERS:
            argument = _NUMPY_WRAPPERS[type(value)]
            return _constructor(type(value), {argument: getattr(value, argument)}, collector)
        case SaysHowItWasMade():
            arguments = value.constructor_arguments()
            return _constructor(type(value), arguments, collector)
        case _ if dataclasses.is_dataclass(value):
            fields = [field for field in dataclasses.fields(value) if field.init]
            arguments = {field.name: getattr(value, field.name) for field in fields}
            return _constructor(type(value), arguments, collector)
    return None


def _constructor(
    owner: type, arguments: Mapping[str, Any], collector: SourceCollector
) -> str | None:
    name = qualified_name(owner, collector.names)
    return None if name is None else _call(name, (), arguments, collector)


def _call(
    name: str, positional: Sequence[Any], keywords: Mapping[str, Any], collector: SourceCollector
) -> str:
    known = len(collector.gaps)
    parts = [write_value(argument, collector) for argument in positional]
    named = {key: write_value(argument, collector) for key, argument in keywords.items()}
    if len(collector.gaps) > known:
        return "None"  # a call with a gap in it would fail in a way of its own
    return f"{name}({call_arguments(parts, named)})"


def _literal(value: Any, collector: SourceCollector) -> str:
    name = getattr(value, "__name__", "")
    if isinstance(name, str) and name and getattr(operator, name, None) is value:
        collector.names.modules.add("operator")  # where users know it from, not `_operator`
        return f"operator.{name}"
    known = set(collector.names.objects)
    expression = literal(value, collector.names)
    fresh = {n: v for n, v in collector.names.objects.items() if n not in known}
    if fresh == {expression: value} and expression not in collector.definitions:
        del collector.names.objects[expression]
        return _without_literal(value, collector)
    define_bound_objects(collector)
    return expression


def define_bound_objects(collector: SourceCollector) -> None:
    """Defines the objects that expressions refer to by names and that have no definition yet.

    Args:
        collector: Its `names.objects` are looked at.
    """
    for name, value in list(collector.names.objects.items()):
        if name not in collector.definitions and name not in collector.being_defined:
            collector.being_defined.add(name)
            expression = _without_literal(value, collector)
            gap = f"  # FILL IN: {collector.gaps[-1]}" if expression == "None" else ""
            collector.define(name, f"{name} = {expression}{gap}")


def _without_literal(value: Any, collector: SourceCollector) -> str:
    """Writes a value that is neither a literal nor importable by its own name."""
    if isinstance(value, types.FunctionType) and not is_installed(value.__module__):
        return _program_function(value, collector)
    made = write_distributed(value, collector) or _by_construction(value, collector)
    if made is not None:
        return made
    if isinstance(value, torch.Tensor) and (listed := _tensor(value)):
        return listed
    found = _by_module(value, collector)
    if found is not None:
        return found
    return _gap(f"a {type(value).__module__}.{type(value).__qualname__}", collector)


def _tensor(value: torch.Tensor) -> str | None:
    plain = type(value) is torch.Tensor and value.layout is torch.strided and not value.is_meta
    if not plain or value.numel() > _EXACT_ELEMENTS:
        return None
    recipe = Exactly(tuple(value.detach().cpu().reshape(-1).tolist()))
    return recipe.source(Target(str(tuple(value.shape)), value.dtype, str(value.device)))


def _by_module(value: Any, collector: SourceCollector) -> str | None:
    """Finds an object that a module holds under a name: constants, operators, enum members."""
    owner = type(value)
    members = getattr(owner, "__members__", None)
    if isinstance(members, Mapping):
        named = [name for name, member in members.items() if member == value]
        path = _class_path(owner)
        if named and path:
            collector.names.modules.add(owner.__module__)
            return attribute(f"{owner.__module__}.{path}", named[0])
    home = getattr(value, "__module__", None) or owner.__module__
    for name in dict.fromkeys((home, owner.__module__)):
        if not isinstance(name, str) or name in ("__main__", "builtins"):
            continue
        for held_as, held in vars(sys.modules.get(name, types)).items():
            if held is value and is_name(held_as):
                collector.names.modules.add(name)
                return f"{name}.{held_as}"
    return None


def _class_path(owner: type) -> str | None:
    """Returns under which name a class is found in its module; None where another cannot look."""
    home: Any = sys.modules.get(owner.__module__)
    if home is None or owner.__module__ == "__main__":
        return None
    if class_name(owner, Names()):
        return owner.__qualname__
    return next((n for n, held in vars(home).items() if held is owner and is_name(n)), None)
