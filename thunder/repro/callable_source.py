"""A plain function as what a script runs, for failures that come before there is a graph."""

from __future__ import annotations

import dataclasses
import types
from collections.abc import Callable, Sequence
from typing import Any

import torch

from thunder.repro.collecting import SourceCollector, is_installed
from thunder.repro.compilers import CompileSource
from thunder.repro.functions import define_function
from thunder.repro.linking import support_names
from thunder.repro.module_object import write_module_object
from thunder.repro.module_source import ModuleSource
from thunder.repro.values import write_value
from thunder.trace.syntax import attribute

_OF_SCRIPTS = {"module", "make_module", "make_inputs", "around", "STORED"}


def callable_source(function: Callable[..., Any], *, keywords: Sequence[str] = ()) -> ModuleSource:
    """Writes a function, or another callable, that a user compiles.

    Args:
        function: A function, importable or defined by the program; a bound method; a callable
            that says how it was made; a module, by its class and its state.
        keywords: Names of the last inputs that are passed by keyword.

    Returns:
        The source. When the function refers to something that cannot be written down, `missing`
        says so, and the script has a place to fill in.

    Example:
        >>> import torch
        >>> callable_source(torch.sin).construction
        'torch.sin'
    """
    collector = SourceCollector(reserved=support_names() | _OF_SCRIPTS)
    written = "None"
    if isinstance(_owner(function), torch.nn.Module):
        attempt = collector.fork()
        made = write_module_object(_owner(function), attempt, write_value)
        if not attempt.gaps:
            collector.take(attempt)
            is_whole = function is _owner(function) or function.__name__ == "forward"
            written = made if is_whole else attribute(made, function.__name__)
    else:
        attempt = collector.fork()
        written = write_value(function, attempt)
        if written != "None":
            collector.take(attempt)
        elif isinstance(function, types.FunctionType) and not is_installed(function.__module__):
            written = define_function(function, collector, write_value, with_gaps=True) or "None"
    if written == "None":
        owner = type(function) if isinstance(function, torch.nn.Module) else function
        name = getattr(owner, "__qualname__", type(function).__qualname__)
        what = f"{getattr(owner, '__module__', '')}.{name}"
        collector.gaps.clear()
        collector.miss(f"{what}, which is compiled: import it, or write it here")
        written = f"fill_in({what!r})"
    if keywords:
        written = f"Keywords({written}, {list(keywords)!r})"
    return ModuleSource(
        construction=written,
        text="",
        imports=collector.imports(),
        definitions=tuple(collector.definitions.values()),
        missing=collector.missing,
        notes=tuple(collector.notes),
    )


def _owner(function: Callable[..., Any]) -> Any:
    """Returns the object that a bound method belongs to; anything else as it is."""
    return function.__self__ if isinstance(function, types.MethodType) else function


def call_with_keywords(source: CompileSource) -> CompileSource:
    """Changes a way to compile so that it takes what `callable_source` made of keywords.

    Args:
        source: Compiles `module`; here, the function without the keywords.
    """
    expression = f"module.around(lambda module: {source.expression})"
    return dataclasses.replace(source, expression=expression)
