"""Ways to compile a module, as source: what a script compares or runs.

A way is an expression in terms of `module`. Those of this package and of torch are ready-made;
others make their own `CompileSource`.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from thunder.repro.collecting import SourceCollector
from thunder.repro.values import write_value


@dataclass(frozen=True, kw_only=True, slots=True)
class CompileSource:
    """A way to compile a module.

    Attributes:
        name: What it is called in reports and in the names of functions.
        expression: Source of a callable that does what the module `module` does.
        imports: Import statements that the expression needs.
        definitions: Statements that must run before.
        missing: What could not be written down; empty when the source is faithful.
        notes: Sentences for the reader.

    Example:
        >>> CompileSource(name="eager", expression="module").identifier
        'eager'
    """

    name: str
    expression: str
    imports: tuple[str, ...] = ()
    definitions: tuple[str, ...] = ()
    missing: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()

    @property
    def identifier(self) -> str:
        """The name as part of a Python identifier."""
        return re.sub(r"\W+", "_", self.name, flags=re.ASCII).strip("_") or "compiler"


EAGER = CompileSource(name="eager", expression="module")


def call_source(
    name: str, function: str, options: Mapping[str, Any], *, imports: tuple[str, ...]
) -> CompileSource:
    """Writes a call of a compiler with the user's options.

    Args:
        name: What the way is called.
        function: The compiler, as an expression.
        options: Keyword arguments besides the module. One that has no source is left out, with a
            comment in its place.
        imports: Import statements that `function` needs.

    Example:
        >>> source = call_source("mine", "compile", {"level": 2}, imports=())
        >>> source.expression
        'compile(module, level=2)'
    """
    collector = SourceCollector(reserved={"module"})
    parts, gaps = [], []
    for option, value in options.items():
        fork = collector.fork()
        written = write_value(value, fork)
        new = fork.gaps[len(collector.gaps) :]
        collector.take(fork)
        if new and written == "None":
            gaps += [f"    # FILL IN {option}=: {what}" for what in new]
        else:
            parts.append(f"{option}={written}")
    if gaps or any("\n" in part for part in parts):
        lines = ["module", *(part.replace("\n", "\n    ") for part in parts)]
        inner = "\n".join([*(f"    {line}," for line in lines), *gaps])
        expression = f"{function}(\n{inner}\n)"
    else:
        expression = f"{function}({', '.join(['module', *parts])})"
    return CompileSource(
        name=name,
        expression=expression,
        imports=(*imports, *(i for i in collector.imports() if i not in imports)),
        definitions=tuple(collector.definitions.values()),
        missing=collector.missing,
        notes=tuple(collector.notes),
    )


def torch_compile_source(options: Mapping[str, Any] | None = None) -> CompileSource:
    """Returns `torch.compile(module, ...)`.

    Args:
        options: Keyword arguments of torch.compile.
    """
    return call_source("torch.compile", "torch.compile", options or {}, imports=("import torch",))


def thunderfx_source(options: Mapping[str, Any] | None = None) -> CompileSource:
    """Returns `thunderfx(module, ...)`.

    Args:
        options: Keyword arguments of thunderfx: torch.compile's and ThunderCompiler's.
    """
    imports = ("from thunder import thunderfx",)
    return call_source("thunder", "thunderfx", options or {}, imports=imports)


def jit_source(options: Mapping[str, Any] | None = None) -> CompileSource:
    """Returns `thunder.jit(module, ...)`.

    Args:
        options: Keyword arguments of thunder.jit.
    """
    return call_source("thunder.jit", "thunder.jit", options or {}, imports=("import thunder",))
