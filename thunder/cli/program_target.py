"""`SCRIPT_OR_MODULE:FUNCTION`: finds a program, and what it is called with."""

from __future__ import annotations

import importlib
import importlib.util
import inspect
import sys
import types
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from torch import nn

from thunder.errors import NotCallableError, OptionError, nearest


@dataclass(frozen=True, kw_only=True, slots=True)
class ProgramTarget:
    """A program to report on.

    Attributes:
        function: The callable.
        args: Its positional arguments.
        kwargs: Its keyword arguments.
    """

    function: Callable[..., Any]
    args: Sequence[Any] = ()
    kwargs: Mapping[str, Any] = field(default_factory=dict)


def find_program(target: str, inputs: str | None) -> ProgramTarget:
    """Loads a script or module and finds the program in it.

    Args:
        target: `train.py:step`, or `package.module:model`. Dots in the name after the colon go
            into attributes.
        inputs: Name of what it is called with, in the same file: a tuple or list of positional
            arguments, a dict of keyword arguments, both as a tuple of a tuple and a dict, one
            argument that is none of these, or a function that returns one of all that. None for
            no arguments.

    Raises:
        OptionError: The target is not written so, cannot be found, or needs arguments.
        NotCallableError: It cannot be called, or is a class.
        Exception: What loading the script raises.
    """
    place, colon, name = target.rpartition(":")
    if not colon or not place or not name:
        raise OptionError(
            f"{target!r} names no program: write SCRIPT.py:FUNCTION or package.module:FUNCTION"
        )
    module = _load(place)
    function = _attribute(module, name)
    if not callable(function):
        raise NotCallableError(f"{target} is a {type(function).__name__}, which cannot be called")
    if isinstance(function, type):
        raise NotCallableError(
            f"{target} is a class, and calling it only makes an object: name an instance of it, "
            f"as in `model = {function.__name__}(...)`, or a function"
        )
    if inputs is None:
        _must_take_nothing(function, target)
        return ProgramTarget(function=function)
    given = _attribute(module, inputs)
    values = given() if callable(given) and not isinstance(given, nn.Module) else given
    args, kwargs = _arguments(values)
    return ProgramTarget(function=function, args=args, kwargs=kwargs)


def _arguments(values: Any) -> tuple[tuple[Any, ...], dict[str, Any]]:
    match values:
        case (tuple(args), dict(kwargs)) if type(values) is tuple:
            return args, kwargs
        case tuple() | list():
            return tuple(values), {}
        case Mapping():
            return (), dict(values)
    return (values,), {}


def _load(place: str) -> types.ModuleType:
    if not place.endswith(".py"):
        sys.path.insert(0, str(Path.cwd()))
        try:
            return importlib.import_module(place)
        except ModuleNotFoundError as error:
            if error.name is None or not f"{place}.".startswith(f"{error.name}."):
                raise
            raise OptionError(f"there is no module {place}; a script is written {place}.py") from (
                error
            )
    path = Path(place)
    if not path.is_file():
        raise OptionError(f"there is no file {place}")
    sys.path.insert(0, str(path.resolve().parent))
    spec = importlib.util.spec_from_file_location(path.stem, path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[path.stem] = module
    spec.loader.exec_module(module)
    return module


def _attribute(module: types.ModuleType, name: str) -> Any:
    found: Any = module
    for part in name.split("."):
        if not hasattr(found, part):
            known = [each for each in vars(module) if not each.startswith("_")]
            close = nearest(part, known)
            hint = f"; did you mean {close!r}?" if close else ""
            raise OptionError(f"{module.__name__} has no {name!r}{hint}")
        found = getattr(found, part)
    return found


def _must_take_nothing(function: Callable[..., Any], target: str) -> None:
    called = function.forward if isinstance(function, nn.Module) else function
    try:
        inspect.signature(called).bind()
    except TypeError as error:
        raise OptionError(
            f"{target} needs arguments ({error}): write a function in the same file that returns "
            "them, as a tuple or a dict, and name it with --inputs"
        ) from error
    except ValueError:  # a builtin without a signature: it says itself what it needs
        return
