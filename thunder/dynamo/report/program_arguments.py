"""Arguments of a program and options of a report travel together: names of both are refused."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Iterable, Iterator
from typing import Any

from torch import nn

from thunder.errors import OptionError


def refuse_shared_names(
    report: Callable[..., Any], fn: Callable[..., Any], args: Iterable[Any]
) -> None:
    """Refuses a program with a parameter that is called like an option of the reporting function.

    Such a parameter could not be given: the reporting function would take it for its own.

    Args:
        report: The reporting function; its options are its keyword-only parameters.
        fn: The program.
        args: The program's positional arguments. What these or a `functools.partial` give needs
            no name.

    Raises:
        OptionError: A name is shared.

    Example:
        >>> def report(fn, *args, show=True, **kwargs): ...
        >>> refuse_shared_names(report, functools.partial(print, sep=""), ["x"])
        >>> refuse_shared_names(report, lambda x, show: x, [1])
        Traceback (most recent call last):
          ...
        thunder.errors.OptionError: the program has a parameter 'show', and so has report: ...
    """
    options = [
        name
        for name, parameter in inspect.signature(report).parameters.items()
        if parameter.kind is inspect.Parameter.KEYWORD_ONLY
    ]
    shared = [name for name in _open_names(fn, tuple(args)) if name in options]
    if shared:
        name = shared[0]
        raise OptionError(
            f"the program has a parameter {name!r}, and so has {report.__name__}: give the "
            f"program's beforehand, as in functools.partial(program, {name}=...)"
        )


def _open_names(fn: Callable[..., Any], args: tuple[Any, ...]) -> Iterator[str]:
    """Yields the parameters that only a keyword argument could give."""
    called = fn.forward if isinstance(fn, nn.Module) else fn
    try:
        signature = inspect.signature(called)
        given = set(signature.bind_partial(*args).arguments)
    except (TypeError, ValueError):  # a builtin has no signature; a wrong call says so itself
        return
    given |= set(called.keywords) if isinstance(called, functools.partial) else set()
    named = (inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY)
    for name, parameter in signature.parameters.items():
        if parameter.kind in named and name not in given:
            yield name
