"""A plain function as what a script runs, for failures that come before there is a graph."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch

from thunder.repro.collecting import SourceCollector
from thunder.repro.module_source import ModuleSource
from thunder.repro.values import write_value


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
    collector = SourceCollector()
    written = "None"
    if not isinstance(function, torch.nn.Module):
        written = write_value(function, collector)
    if written == "None":
        owner = type(function) if isinstance(function, torch.nn.Module) else function
        name = getattr(owner, "__qualname__", type(function).__qualname__)
        what = f"{getattr(owner, '__module__', '')}.{name}"
        collector.gaps.clear()
        collector.miss(f"{what}, which is compiled: import it, or write it here")
        written = f"fill_in({what!r})"
    if keywords:
        count = len(keywords)
        written = (
            f"lambda *inputs: {written}(*inputs[:-{count}], "
            f"**dict(zip({list(keywords)!r}, inputs[-{count}:])))"
        )
    return ModuleSource(
        construction=written,
        text="",
        imports=collector.imports(),
        definitions=tuple(collector.definitions.values()),
        missing=collector.missing,
        notes=tuple(collector.notes),
    )
