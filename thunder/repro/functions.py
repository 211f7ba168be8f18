"""Functions that a program defines, written out so that another program can define them too.

A function is written when everything that it refers to can be: other functions, modules,
constants, the values of its closure and of its defaults. The text comes from the source file.
"""

from __future__ import annotations

import ast
import dis
import linecache
import textwrap
import types
from collections.abc import Callable, Iterator
from typing import Any

from thunder.repro.collecting import SourceCollector
from thunder.trace.syntax import is_name

WriteValue = Callable[[Any, SourceCollector], str]


def define_function(
    function: types.FunctionType,
    collector: SourceCollector,
    write_value: WriteValue,
    *,
    with_gaps: bool = False,
) -> str | None:
    """Defines a function in a script.

    Args:
        function: The function, or a lambda. Decorators and annotations are left out.
        collector: Gets the definition and those of what the function refers to.
        write_value: Writes the values that the function refers to.
        with_gaps: Whether it is defined although something that it refers to cannot be written
            down; None then stands in the place, and the collector has the gap.

    Returns:
        The name that it has in the script; None when it is not self-contained or has no source,
        and nothing was added.
    """
    node = find_definition(function)
    if node is None:
        return None
    is_named = isinstance(node, ast.FunctionDef) and function.__name__.strip("_")
    name = function.__name__ if is_named else "function"
    if not is_name(name):
        return None
    attempt = collector.fork()
    if not _define_globals(function, node, attempt, write_value, with_gaps=with_gaps):
        return None
    _detach(node, function, attempt, write_value)
    closure = _closure(function, attempt, write_value)
    if len(attempt.gaps) > len(collector.gaps) and not with_gaps:
        return None
    for candidate in (name, *(f"{name}_{count}" for count in range(1, 100))):
        if attempt.define(candidate, _statement(node, candidate, closure)):
            collector.take(attempt)
            return candidate
    return None


def _closure(
    function: types.FunctionType, collector: SourceCollector, write_value: WriteValue
) -> dict[str, str]:
    written = {}
    cells = zip(function.__code__.co_freevars, function.__closure__ or (), strict=True)
    for name, cell in cells:
        try:
            value = cell.cell_contents
        except ValueError:  # not assigned yet
            collector.miss(f"the variable {name}, which had no value")
            written[name] = "None"
            continue
        known = len(collector.gaps)
        written[name] = write_value(value, collector)
        collector.gaps[known:] = [f"{name}, {gap}" for gap in collector.gaps[known:]]
    return written


def find_definition(function: types.FunctionType) -> ast.FunctionDef | ast.Lambda | None:
    """Finds the syntax tree of a function in its source file.

    Args:
        function: The function or lambda.

    Returns:
        Its node; None where there is no source.
    """
    code = function.__code__
    lines = linecache.getlines(code.co_filename, function.__globals__)
    try:
        tree = ast.parse("".join(lines))
    except SyntaxError:
        return None
    found = [node for node in ast.walk(tree) if _is_definition(node, function)]
    if len(found) > 1:
        found = [node for node in found if _compiled(node) == (code.co_code, code.co_consts)]
    match found:
        case [ast.FunctionDef() | ast.Lambda() as first, *_]:
            return first
    return None


def _is_definition(node: ast.AST, function: types.FunctionType) -> bool:
    code = function.__code__
    arguments = code.co_varnames[: code.co_argcount + code.co_kwonlyargcount]
    match node:
        case ast.FunctionDef(name=name, decorator_list=decorators):
            first = min([node.lineno, *(decorator.lineno for decorator in decorators)])
            return name == code.co_name and first == code.co_firstlineno
        case ast.Lambda(args=args):
            names = [a.arg for a in (*args.posonlyargs, *args.args, *args.kwonlyargs)]
            return (
                code.co_name == "<lambda>"
                and node.lineno == code.co_firstlineno
                and names == list(arguments)
            )
    return False


def _compiled(node: ast.AST) -> tuple[bytes, tuple[Any, ...]] | None:
    if not isinstance(node, ast.Lambda):
        return None
    whole = compile(ast.Expression(node), "<lambda>", "eval")
    codes = [constant for constant in whole.co_consts if isinstance(constant, types.CodeType)]
    return (codes[0].co_code, codes[0].co_consts) if codes else None


def _define_globals(
    function: types.FunctionType,
    node: ast.AST,
    collector: SourceCollector,
    write_value: WriteValue,
    *,
    with_gaps: bool,
) -> bool:
    for name, value in _globals(function, node):
        if value is function:
            continue
        before = len(collector.gaps)
        expression = write_value(value, collector)
        gaps = collector.gaps[before:]
        if gaps and not with_gaps:
            return False
        collector.gaps[before:] = [f"{name}, {gap}" for gap in gaps]
        mark = f"  # FILL IN: {collector.gaps[-1]}" if gaps and expression == "None" else ""
        if expression != name and not collector.define(name, f"{name} = {expression}{mark}"):
            return False
    return True


def _globals(function: types.FunctionType, node: ast.AST) -> Iterator[tuple[str, Any]]:
    """Yields the global names that a function reads, and their values, sorted."""
    loaded = {
        child.id
        for child in ast.walk(node)
        if isinstance(child, ast.Name) and isinstance(child.ctx, ast.Load)
    }
    for name in sorted(loaded & global_names(function.__code__)):
        if name in function.__globals__:
            yield name, function.__globals__[name]


def global_names(code: types.CodeType) -> set[str]:
    """Returns the names that code, and the functions in it, look up outside of functions.

    Args:
        code: Of a function, or of a class with the statement that defines it.
    """
    return {
        instruction.argval
        for each in _codes(code)
        for instruction in dis.get_instructions(each)
        if instruction.opname in ("LOAD_GLOBAL", "LOAD_NAME")
    }


def _codes(code: types.CodeType) -> Iterator[types.CodeType]:
    yield code
    for constant in code.co_consts:
        if isinstance(constant, types.CodeType):
            yield from _codes(constant)


def _detach(
    node: ast.FunctionDef | ast.Lambda,
    function: types.FunctionType,
    collector: SourceCollector,
    write_value: WriteValue,
) -> None:
    """Takes decorators and annotations away, and puts values in the place of defaults."""

    def written(value: Any) -> ast.expr:
        return ast.parse(write_value(value, collector), mode="eval").body

    keyword = function.__kwdefaults__ or {}
    node.args.defaults = [written(value) for value in function.__defaults__ or ()]
    node.args.kw_defaults = [
        written(keyword[a.arg]) if a.arg in keyword else None for a in node.args.kwonlyargs
    ]
    Unannotated().visit(node)


def _statement(node: ast.FunctionDef | ast.Lambda, name: str, closure: dict[str, str]) -> str:
    """Returns the definition; what was a closure gets its variables from a function around it."""
    if isinstance(node, ast.FunctionDef):
        node.name = name
    text = f"{name} = {ast.unparse(node)}" if isinstance(node, ast.Lambda) else ast.unparse(node)
    if not closure:
        return text
    outer = f"make_{name}"
    values = ", ".join(f"{variable}={value}" for variable, value in closure.items())
    body = textwrap.indent(text, "    ")
    return (
        f"def {outer}({', '.join(closure)}):\n{body}\n    return {name}\n\n\n"
        f"{name} = {outer}({values})"
    )


class Unannotated(ast.NodeTransformer):
    """Takes annotations and decorators away: they name types that the script need not know."""

    def __init__(self, *, keeps_decorators: bool = False) -> None:
        """Makes a transformer.

        Args:
            keeps_decorators: Whether decorators stay; those of methods say what a method is.
        """
        self._keeps_decorators = keeps_decorators

    def visit_FunctionDef(self, node: ast.FunctionDef) -> ast.AST:
        """A function without the types of its arguments and result."""
        self.generic_visit(node)
        node.returns = None
        if not self._keeps_decorators:
            node.decorator_list = []
        return node

    def visit_arg(self, node: ast.arg) -> ast.AST:
        """An argument without its type."""
        node.annotation = None
        return node

    def visit_AnnAssign(self, node: ast.AnnAssign) -> ast.AST:
        """An assignment without its type."""
        self.generic_visit(node)
        if node.value is None:
            return ast.copy_location(ast.Pass(), node)
        return ast.copy_location(ast.Assign(targets=[node.target], value=node.value), node)
