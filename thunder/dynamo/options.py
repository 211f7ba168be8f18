"""Divides `thunderfx`'s keywords between `torch.compile` and `ThunderCompiler`.

Both signatures are read with `inspect`, so a keyword that a later torch adds works here without
a change. This module judges names, and the values of torch.compile's own keywords; what
`ThunderCompiler` alone declares it validates itself.
"""

from __future__ import annotations

import enum
import inspect
import types
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Union, get_args, get_origin, get_type_hints

import torch
from torch._inductor import config as inductor_config

from thunder.dynamo.compiler import EntryPoint, ThunderCompiler
from thunder.errors import OptionError, nearest

_OF_TORCH_IN_OPTIONS = ("guard_filter_fn", "use_aoti")
"""Keys of `options=` that torch.compile takes out for itself; no Inductor settings."""

_SIMPLE_TYPES = (bool, int, str, types.NoneType)


class Owner(enum.Enum):
    """Who declares a keyword."""

    TORCH = "torch.compile"
    THUNDER = "ThunderCompiler"
    BOTH = "both torch.compile and ThunderCompiler"


@dataclass(frozen=True, kw_only=True, slots=True)
class DividedOptions:
    """Keywords, each with the callable that takes it.

    Attributes:
        torch_compile: For `torch.compile`, without `backend`.
        compiler: For `ThunderCompiler`.
        entry_point: Which entry point they were given to.
    """

    torch_compile: Mapping[str, Any] = field(default_factory=dict)
    compiler: Mapping[str, Any] = field(default_factory=dict)
    entry_point: EntryPoint = EntryPoint.THUNDERFX

    def make_compiler(self) -> ThunderCompiler:
        """Returns a new compiler with these options."""
        compiler = ThunderCompiler(**self.compiler)
        compiler.entry_point = self.entry_point
        return compiler

    def make_torch_options(self) -> dict[str, Any]:
        """Returns keywords for one call of torch.compile, which takes keys out of `options`."""
        return {k: dict(v) if k == "options" and v else v for k, v in self.torch_compile.items()}


def divide_options(
    options: Mapping[str, Any], entry_point: EntryPoint = EntryPoint.THUNDERFX
) -> DividedOptions:
    """Divides keywords by who declares them. What both declare goes to both.

    Args:
        options: The keywords by name.
        entry_point: Which entry point they were given to.

    Returns:
        The two shares. Where torch.compile has `isolate_recompiles` and the user is silent about
        it, it is on: a new compiler shares nothing with earlier ones, so graphs that others
        compiled for the same function must not count against its recompile limit.

    Raises:
        OptionError: A keyword is unknown, is `backend`, or has a value that is not accepted.

    Example:
        >>> divided = divide_options({"fullgraph": True, "on_failure": "raise"})
        >>> dict(divided.compiler)
        {'on_failure': 'raise'}
        >>> divided.torch_compile["fullgraph"]
        True
    """
    of_torch, of_thunder = _torch_parameters(), _thunder_parameters()
    _refuse_backend(options)
    if not _takes_anything(torch.compile):
        for name in options:
            if name not in of_torch and name not in of_thunder:
                raise _unknown(name, options[name], entry_point)
    for name, value in options.items():
        if name in of_torch:
            _check_value(name, value, of_torch[name].annotation)
    _check_inductor_options(options)
    torch_compile = {k: v for k, v in options.items() if k in of_torch or k not in of_thunder}
    if "isolate_recompiles" in of_torch:
        torch_compile.setdefault("isolate_recompiles", True)
    compiler = {k: v for k, v in options.items() if k in of_thunder}
    if compiler.get("options"):
        compiler["options"] = {
            k: v for k, v in compiler["options"].items() if k not in _OF_TORCH_IN_OPTIONS
        }
    return DividedOptions(torch_compile=torch_compile, compiler=compiler, entry_point=entry_point)


def known_options() -> dict[str, Owner]:
    """Returns every keyword and who declares it: torch.compile's first, in order."""
    of_torch, of_thunder = _torch_parameters(), _thunder_parameters()
    owners = {name: Owner.BOTH if name in of_thunder else Owner.TORCH for name in of_torch}
    return owners | {name: Owner.THUNDER for name in of_thunder if name not in owners}


def option_parameters() -> list[inspect.Parameter]:
    """Returns a keyword-only parameter with type and default for each option."""
    union = {**_thunder_parameters(), **_torch_parameters()}
    if "isolate_recompiles" in union:
        union["isolate_recompiles"] = union["isolate_recompiles"].replace(default=True)
    parameters = [
        union[name].replace(kind=inspect.Parameter.KEYWORD_ONLY) for name in known_options()
    ]
    if _takes_anything(torch.compile):
        kind = inspect.Parameter.VAR_KEYWORD
        parameters.append(inspect.Parameter("torch_compile_options", kind, annotation=Any))
    return parameters


def _torch_parameters() -> dict[str, inspect.Parameter]:
    """The keywords of torch.compile, without what is compiled and without `backend`."""
    _, *parameters = inspect.signature(torch.compile).parameters.values()
    kinds = (inspect.Parameter.KEYWORD_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
    return {p.name: p for p in parameters if p.kind in kinds and p.name != "backend"}


def _thunder_parameters() -> dict[str, inspect.Parameter]:
    hints = get_type_hints(ThunderCompiler.__init__)
    parameters = inspect.signature(ThunderCompiler).parameters.values()
    return {p.name: p.replace(annotation=hints.get(p.name, p.annotation)) for p in parameters}


def _takes_anything(function: Callable[..., Any]) -> bool:
    parameters = inspect.signature(function).parameters.values()
    return any(p.kind is inspect.Parameter.VAR_KEYWORD for p in parameters)


def _refuse_backend(options: Mapping[str, Any]) -> None:
    if "backend" in options:
        raise OptionError(
            "backend= is not an option here: thunderfx(f) is torch.compile(f, backend=B) where B "
            "is a ThunderCompiler, and so is thunder.jit. To choose what runs the regions, use "
            "executors=[...]; for another backend, call torch.compile(f, backend=...)"
        )


def _unknown(name: str, value: Any, entry_point: EntryPoint) -> OptionError:
    owners = known_options()
    close = nearest(name, owners)
    if name in inductor_config.get_config_copy():
        hint = f"it is a setting of Inductor: write options={{{name!r}: {value!r}}}"
    elif close:
        hint = f"did you mean {close!r}, an option of {owners[close].value}?"
    else:
        hint = "; ".join(
            f"{owner.value}: {', '.join(n for n, o in owners.items() if o is owner)}"
            for owner in Owner
            if owner in owners.values()
        )
        hint = f"options of {hint}"
    return OptionError(f"{name!r} is no option of {entry_point.value}; {hint}")


def _check_inductor_options(options: Mapping[str, Any]) -> None:
    settings = options.get("options")
    if settings is None:
        return
    if options.get("mode") is not None:
        raise OptionError(
            "mode= and options= cannot both be given (a rule of torch.compile): a mode is a name "
            "for some options; torch._inductor.list_mode_options() says which"
        )
    if not isinstance(settings, Mapping):
        raise OptionError(
            f"options= takes a dict of Inductor settings, not {settings!r}, "
            "for instance options={'max_autotune': True}"
        )


def _check_value(name: str, value: Any, annotation: Any) -> None:
    """Refuses a value of the wrong type where the annotation is made of simple types only."""
    is_union = get_origin(annotation) in (Union, types.UnionType)
    accepted = get_args(annotation) if is_union else (annotation,)
    if not all(member in _SIMPLE_TYPES for member in accepted):
        return
    # A bool is an int to isinstance, yet as a limit it is a slip.
    is_wrong_bool = isinstance(value, bool) and bool not in accepted
    if isinstance(value, accepted) and not is_wrong_bool:
        return
    names = ["None" if member is types.NoneType else member.__name__ for member in accepted]
    raise OptionError(f"{name}={value!r} is not accepted; {name}= takes {' or '.join(names)}")
