"""Source text of the values and targets that graphs hold.

Everything that can be written in Python's and torch's own terms is; for anything else the
caller decides (`Names.bind`).
"""

from __future__ import annotations

import builtins
import enum
import keyword
import math
import re
import sys
import types
from collections.abc import Callable, Iterable
from typing import Any

import torch
from torch import fx
from torch.fx.node import _get_qualified_name

from thunder.trace.operators import defining_module
from thunder.trace.syntax import is_dotted_name, is_name


class Names:
    """The names that a printed program refers to.

    Attributes:
        modules: Modules to import, by dotted name.
        objects: Names bound to objects that have no source of their own.
    """

    def __init__(self, reserved: Iterable[str] = ()) -> None:
        """Starts with `torch` alone.

        Args:
            reserved: Names of local variables, which no object may get.
        """
        self.modules: set[str] = {"torch"}
        self.objects: dict[str, Any] = {}
        self._reserved = frozenset(reserved)

    def imported(self) -> list[str]:
        """Returns the modules, sorted, without those whose names no import statement can have."""
        return sorted(filter(is_dotted_name, self.modules))

    def bind(self, stem: str, value: Any) -> str:
        """Returns a name for an object that cannot be written as source.

        Args:
            stem: What the name should be like.
            value: The object; the same object gets the same name again.
        """
        stem = re.sub(r"\W", "_", stem) or "object"
        stem = f"_{stem}" if stem[0].isdigit() or keyword.iskeyword(stem) else stem
        name, count = stem, 0
        while name in self._reserved or self.objects.get(name, value) is not value:
            count += 1
            name = f"{stem}_{count}"
        self.objects[name] = value
        return name


def literal(value: Any, names: Names) -> str:
    """Returns an expression that gives `value`.

    Args:
        value: An argument of a node: nodes, numbers, strings, dtypes, containers and so on.
        names: Collects imports and objects that have no source.
    """
    return (
        _scalar(value, names)
        or _container(value, names)
        or _callable(value, names)
        or names.bind("constant", value)
    )


def _scalar(value: Any, names: Names) -> str | None:
    match value:
        case fx.Node():
            return value.name
        case torch.SymInt() | torch.SymFloat() | torch.SymBool():
            return str(value)
        case enum.Enum():
            return _enum_member(value, names)
        case None | bool() | types.EllipsisType():
            return repr(value)
        case int() | str() | bytes() | float() | complex():
            return _plain(value, names)
        case torch.device():
            return f"torch.device({str(value)!r})"
        case torch.dtype() | torch.layout() | torch.memory_format():
            return str(value)
        case slice():
            parts = (value.start, value.stop, value.step)
            return f"slice({', '.join(literal(part, names) for part in parts)})"
        case range():
            return repr(value)
    return None


def _plain(value: int | str | bytes | float | complex, names: Names) -> str:
    """Writes a number or a string; of a subclass, whose repr may be any text, the plain value."""
    match value:
        case int():
            return int.__repr__(value)
        case str():
            return str.__repr__(value)
        case bytes():
            return bytes.__repr__(value)
        case float():
            text = float.__repr__(value)
            return text if math.isfinite(value) else f"float({text!r})"
    plain = complex(value)
    return f"complex({literal(plain.real, names)}, {literal(plain.imag, names)})"


def _enum_member(value: enum.Enum, names: Names) -> str | None:
    owner = class_name(type(value), names)
    if owner is None:
        return None
    if type(value).__members__.get(value.name) is not value:  # flags that are set together
        return f"{owner}({literal(value.value, names)})"
    return f"{owner}.{value.name}" if is_name(value.name) else f"{owner}[{value.name!r}]"


def class_name(owner: type, names: Names) -> str | None:
    """Returns the dotted name under which another program finds a class, or None.

    Args:
        owner: The class.
        names: Gets the module to import.
    """
    module, path = owner.__module__, owner.__qualname__
    if module == "__main__" or not is_dotted_name(module) or not is_dotted_name(path):
        return None
    found: Any = sys.modules.get(module)
    for part in path.split("."):
        found = getattr(found, part, None)
    if found is not owner:
        return None
    names.modules.add(module)
    return f"{module}.{path}"


def _container(value: Any, names: Names) -> str | None:
    match value:
        case torch.Size():
            return f"torch.Size([{', '.join(literal(element, names) for element in value)}])"
        case tuple() if hasattr(value, "_fields") and (name := class_name(type(value), names)):
            return f"{name}({', '.join(literal(element, names) for element in value)})"
        case tuple():
            inner = ", ".join(literal(element, names) for element in value)
            return f"({inner},)" if len(value) == 1 else f"({inner})"
        case list():
            return f"[{', '.join(literal(element, names) for element in value)}]"
        case dict():
            items = (f"{literal(k, names)}: {literal(v, names)}" for k, v in value.items())
            return "{" + ", ".join(items) + "}"
    return None


def _callable(value: Any, names: Names) -> str | None:
    if isinstance(value, torch._ops.OpOverload):
        names.modules.update(filter(None, [defining_module(value)]))
        return f"torch.ops.{value}"
    if isinstance(value, torch._ops.OpOverloadPacket):
        return f"torch.ops.{value}"
    if isinstance(value, torch._ops.HigherOrderOperator):
        return higher_order_name(value, names)
    if isinstance(value, type) or callable(value):
        return qualified_name(value, names)
    return None


def higher_order_name(operator: torch._ops.HigherOrderOperator, names: Names) -> str:
    """Returns how to write a higher-order operator, which not all live in `torch.ops`."""
    if getattr(torch.ops.higher_order, operator.__name__, None) is operator:
        names.modules.add(type(operator).__module__)
        return f"torch.ops.higher_order.{operator.__name__}"
    return names.bind(operator.__name__, operator)


def qualified_name(function: Callable[..., Any], names: Names) -> str | None:
    """Returns the dotted name under which `function` can be imported, or None.

    Args:
        function: A function, builtin or class.
        names: Gets the module to import.
    """
    if getattr(builtins, getattr(function, "__name__", ""), None) is function:
        return function.__name__
    try:
        name = _get_qualified_name(function)
    except (AttributeError, RuntimeError, TypeError, AssertionError):
        return None
    if not is_dotted_name(name) or name.startswith("__main__"):
        return None
    return name if _resolves(name, function, names) else None


def _resolves(name: str, function: Callable[..., Any], names: Names) -> bool:
    parts = name.split(".")
    for cut in range(len(parts) - 1, 0, -1):
        module_name = ".".join(parts[:cut])
        found: Any = sys.modules.get(module_name)
        if found is None:
            continue
        for part in parts[cut:]:
            found = getattr(found, part, None)
        if found is function:
            names.modules.add(module_name)
            return True
    return False
