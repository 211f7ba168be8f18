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
from thunder.repro.module_source import ModuleSource
from thunder.repro.values import write_value

_OF_SCRIPTS = {"module", "make_module", "make_inputs", "around", "STORED"}


def callable_source(function: Callable[..., Any], *, keywords: Sequence[str] = ()) -> ModuleSource:
    """Writes a function, or another callable, that a user compiles.

    Args:
        function: A function, importable or defined by the program; a bound method; a callable
            that says how it was made. A module has no source: its graph has, see
            `module_source`.
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
    if not isinstance(function, torch.nn.Module):
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


def call_with_keywords(source: CompileSource) -> CompileSource:
    """Changes a way to compile so that it takes what `callable_source` made of keywords.

    Args:
        source: Compiles `module`; here, the function without the keywords.
    """
    expression = f"module.around(lambda module: {source.expression})"
    return dataclasses.replace(source, expression=expression)
