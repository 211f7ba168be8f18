"""Writes the parts of the documentation that the code already says.

A part stands between `<!-- generated: NAME -->` and `<!-- end -->` in a Markdown file.

    python docs/generate.py            # bring all parts up to date
    python docs/generate.py --check    # exit 1 and name the files that are not
"""

from __future__ import annotations

import ast
import importlib
import importlib.util
import inspect
import re
import sys
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

import thunder
from thunder import errors
from thunder.debug import tables
from thunder.dynamo import ThunderCompiler

ROOT = Path(__file__).resolve().parent.parent
PACKAGE = Path(thunder.__file__).parent
PART = re.compile(r"(<!-- generated: ([\w-]+) -->\n).*?(<!-- end -->)", re.DOTALL)
PRIVATE = re.compile(r"^(?:from|import) (torch(?:\.\w+)*\._\w+(?:\.\w+)*)", re.MULTILINE)
PUBLIC = (
    "thunder",
    "thunder.dynamo",
    "thunder.dynamo.report",
    "thunder.benchmark",
    "thunder.debug",
    "thunder.examine",
    "thunder.executors",
    "thunder.transforms",
    "thunder.trace",
)


def main(arguments: list[str]) -> int:
    """Updates or checks every Markdown file with generated parts; returns the exit status."""
    stale = []
    for path in [*sorted(ROOT.glob("*.md")), *sorted(ROOT.glob("docs/*.md"))]:
        text = path.read_text()
        fresh = PART.sub(lambda part: f"{part[1]}{PARTS[part[2]]()}\n{part[3]}", text)
        if fresh != text:
            stale.append(str(path.relative_to(ROOT)))
            if "--check" not in arguments:
                path.write_text(fresh)
    if stale:
        print(("out of date: " if "--check" in arguments else "updated: ") + ", ".join(stale))
    return int(bool(stale) and "--check" in arguments)


def api() -> str:
    """Returns, for each public package, a table of what it offers."""
    return "\n\n".join(
        f"### `{name}`\n\n{_table(('name', 'what it is'), rows)}"
        for name in PUBLIC
        if (rows := [(f"`{public}`", _summary(value)) for public, value in _offered(name)])
    )


def options() -> str:
    """Returns the table of the options that every entry point takes."""
    texts = arguments_of(inspect.getdoc(ThunderCompiler.__init__) or "")
    rows = [
        (f"`{name}`", f"`{parameter.default!r}`", texts.get(name, ""))
        for name, parameter in inspect.signature(ThunderCompiler).parameters.items()
    ]
    return _table(("option", "default", "meaning"), rows)


def error_table() -> str:
    """Returns the table of the error classes and of what each is besides."""
    rows = [
        (f"`{name}`", f"`{value.__mro__[2].__name__}`", _summary(value))
        for name, value in vars(errors).items()
        if inspect.isclass(value) and issubclass(value, errors.ThunderError)
        if value is not errors.ThunderError
    ]
    return _table(("error", "also a", "raised when"), rows)


def folders() -> str:
    """Returns the table of the layers, top first, as the import contract states them."""
    contract = re.search(
        r"\nlayers = \[\n(.*?)\n\]", (ROOT / "pyproject.toml").read_text(), re.DOTALL
    )
    assert contract is not None
    rows = []
    for line in re.findall(r'"([^"]+)"', contract[1]):
        for name in re.findall(r"\w+", line):
            if _exists(f"thunder.{name}"):
                rows.append((f"`{name}`", _summary(importlib.import_module(f"thunder.{name}"))))
    return _table(("layer", "what it does"), rows)


def private_modules() -> str:
    """Returns the table of modules that import private parts of torch, and which parts."""
    rows = []
    for path in sorted(PACKAGE.rglob("*.py")):
        found = sorted(set(PRIVATE.findall(path.read_text())))
        if found:
            module = ".".join(path.relative_to(PACKAGE.parent).with_suffix("").parts)
            rows.append((f"`{module}`", ", ".join(f"`{name}`" for name in found)))
    return _table(("module", "parts"), rows)


def arguments_of(docstring: str) -> Mapping[str, str]:
    """Returns the texts of a Google docstring's `Args:` section by argument name."""
    section = re.search(r"^Args:\n((?:[ ]{4}.*\n?|\n)*)", docstring, re.MULTILINE)
    found: dict[str, str] = {}
    name = ""
    for line in (section[1] if section else "").splitlines():
        if start := re.match(r" {4}(\w+)(?: \(.*?\))?: (.*)", line):
            name, found[start[1]] = start[1], start[2]
        elif line.strip() and name:
            found[name] += " " + line.strip()
    return found


def _exists(module: str) -> bool:
    return importlib.util.find_spec(module) is not None


def _offered(package: str) -> Iterator[tuple[str, object]]:
    module = importlib.import_module(package)
    tree = ast.parse(inspect.getsource(module))
    names = [
        alias.name
        for node in tree.body
        if isinstance(node, ast.ImportFrom)
        for alias in node.names
        if alias.asname == alias.name
    ]
    return ((name, getattr(module, name)) for name in sorted(names, key=str.lower))


def _summary(value: object) -> str:
    if not (inspect.isroutine(value) or inspect.isclass(value) or inspect.ismodule(value)):
        return f"A constant, of type `{type(value).__name__}`."
    return (inspect.getdoc(value) or "").partition("\n")[0]


def _table(head: tuple[str, ...], rows: list[tuple[str, ...]]) -> str:
    lines = [head, ("---",) * len(head), *rows]
    escaped = [[cell.replace("|", "\\|") for cell in line] for line in lines]
    return "\n".join(f"| {' | '.join(line)} |" for line in escaped)


PARTS: Mapping[str, Callable[[], str]] = {
    "api": api,
    "debug-flags": tables.flags_table,
    "debug-levels": tables.levels_table,
    "debug-variables": tables.variables_table,
    "errors": error_table,
    "folders": folders,
    "options": options,
    "private": private_modules,
}

if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
