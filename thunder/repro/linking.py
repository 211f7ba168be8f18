"""Copies out of `templates/support.py` what a script uses, and nothing else.

The support code is one module that is linted and tested as such. Here its functions are followed
by name from those that a script calls; how the text of a script is put together is for others.
"""

from __future__ import annotations

import ast
import functools
import symtable
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

TEMPLATES = Path(__file__).with_name("templates")


@dataclass(frozen=True, slots=True)
class LinkedCode:
    """Support code for one script.

    Attributes:
        imports: Import statements that the code needs.
        text: The definitions, in the order of the support module.
    """

    imports: tuple[str, ...]
    text: str


@dataclass(frozen=True, slots=True)
class _Definition:
    text: str
    uses: frozenset[str]


def link(names: Iterable[str]) -> LinkedCode:
    """Returns the support code for a script that uses `names`.

    Args:
        names: Names from the support module; others are ignored.

    Example:
        >>> link(["slope"]).imports
        ('import torch',)
        >>> print(link(["booleans"]).text.splitlines()[0])
        def booleans(shape, density, device="cpu"):
    """
    definitions, imports = _support()
    needed, pending = set(), [name for name in names if name in definitions]
    while pending:
        name = pending.pop()
        if name not in needed:
            needed.add(name)
            pending += definitions[name].uses & definitions.keys()
    kept = [definition for name, definition in definitions.items() if name in needed]
    used = frozenset().union(*(definition.uses for definition in kept))
    return LinkedCode(
        imports=tuple(line for name, line in imports.items() if name in used),
        text="\n\n\n".join(definition.text for definition in kept),
    )


def used_names(source: str) -> frozenset[str]:
    """Returns every name that a piece of source reads or calls.

    Args:
        source: Statements that parse.
    """
    return _names(source)


def support_names() -> frozenset[str]:
    """Returns the names that the support module defines."""
    definitions, imports = _support()
    return frozenset(definitions) | frozenset(imports)


@functools.cache
def _support() -> tuple[dict[str, _Definition], dict[str, str]]:
    source = TEMPLATES.joinpath("support.py").read_text(encoding="utf-8")
    definitions: dict[str, _Definition] = {}
    imports: dict[str, str] = {}
    for node in ast.parse(source).body:
        text = ast.get_source_segment(source, node) or ""
        match node:
            case ast.Import(names=aliases):
                imports |= {
                    alias.name.partition(".")[0]: f"import {alias.name}" for alias in aliases
                }
            case ast.ImportFrom(module=module, names=aliases):
                imports |= dict(_from_import(module, alias) for alias in aliases)
            case ast.FunctionDef(name=name) | ast.ClassDef(name=name):
                definitions[name] = _Definition(text, _names(text))
            case ast.Assign(targets=[ast.Name(id=name)]):
                definitions[name] = _Definition(text, _names(text))
    return definitions, imports


def _from_import(module: str | None, alias: ast.alias) -> tuple[str, str]:
    renamed = f" as {alias.asname}" if alias.asname else ""
    return alias.asname or alias.name, f"from {module} import {alias.name}{renamed}"


def _names(source: str) -> frozenset[str]:
    """Returns the names that a piece of source takes from outside, local variables left out."""
    found: set[str] = set()
    tables = [symtable.symtable(source, "<script>", "exec")]
    while tables:
        table = tables.pop()
        tables += table.get_children()
        top = table.get_type() == "module"
        found |= {
            symbol.get_name()
            for symbol in table.get_symbols()
            if symbol.is_referenced() and (symbol.is_global() or top)
        }
    return frozenset(found)
