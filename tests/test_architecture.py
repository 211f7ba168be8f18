"""Rules about the shape of the package that linters cannot state. `make imports` has the rest."""

from __future__ import annotations

import ast
import importlib
import inspect
import re
from collections.abc import Iterator
from importlib.metadata import distribution
from pathlib import Path

import pytest

import thunder
from thunder import errors

PACKAGE = Path(thunder.__file__).parent
TESTS = Path(__file__).parent
LINE_LIMIT = 500
VAGUE_NAMES = {"common", "helper", "helpers", "misc", "util", "utils"}
SWITCHED_OFF = re.compile(r"#\s*(?:noqa|pyright: ignore|type: ignore)(.*)")
RULES = re.compile(r":?\s*(?:[A-Z]+\d+[,\s]*)+|\[[^]]*\]")


def name_of(path: Path) -> str:
    """Returns the dotted name of one of the package's files."""
    dotted = ".".join(path.relative_to(PACKAGE.parent).with_suffix("").parts)
    return dotted.removesuffix(".__init__")


TEXTS = {  # templates are parts of scripts, not modules
    path: path.read_text()
    for path in sorted(PACKAGE.rglob("*.py"))
    if path.parent.name != "templates"
}
TREES = {name_of(path): ast.parse(text) for path, text in TEXTS.items()}
FACADES = [name_of(path) for path in TEXTS if path.name == "__init__.py"]


def imports(root: ast.AST) -> Iterator[tuple[int, str]]:
    """Yields line and module of each import below `root`."""
    for node in ast.walk(root):
        match node:
            case ast.Import(names=names):
                yield from ((node.lineno, alias.name) for alias in names)
            case ast.ImportFrom(module=str(module), level=0):
                yield node.lineno, module


def test_nothing_imports_the_root():
    """The root is the facade over everything: importing it from below makes a cycle."""
    found = [
        f"{name}:{line}"
        for name, tree in TREES.items()
        for line, module in imports(tree)
        if module == "thunder" and name != "thunder"
    ]
    assert not found, "import from the module that defines the name"


def test_no_package_import_inside_a_function():
    """An import that has to hide in a function is a layer violated at run time."""
    found = {
        f"{name}:{line}"
        for name, tree in TREES.items()
        for function in ast.walk(tree)
        if isinstance(function, ast.FunctionDef | ast.AsyncFunctionDef)
        for line, module in imports(function)
        if module.partition(".")[0] == "thunder"
    }
    assert not found


def test_one_module_one_noun():
    vague = [name_of(path) for path in TEXTS if path.stem in VAGUE_NAMES]
    assert not vague, "name the module after what it holds"
    lengths = {name_of(path): len(text.splitlines()) for path, text in TEXTS.items()}
    long = {name: lines for name, lines in lengths.items() if lines > LINE_LIMIT}
    assert not long, "which second noun can move out?"


def test_modules_say_what_they_do():
    silent = [
        name for name, tree in TREES.items() if len((ast.get_docstring(tree) or "").split()) < 5
    ]
    assert not silent


def test_switched_off_rules_have_a_reason():
    """Written as `# noqa: BLE001 - why` or `# pyright: ignore[rule] - why`."""
    bare = [
        f"{name_of(path)}:{number}"
        for path, text in TEXTS.items()
        for number, line in enumerate(text.splitlines(), 1)
        if (found := SWITCHED_OFF.search(line))
        and not re.search(r"[a-z]{2}", RULES.sub("", found[1], count=1))
    ]
    assert not bare


@pytest.mark.parametrize("name", FACADES)
def test_facade_offers_public_documented_names(name):
    """A package re-exports as `from x import A as A`; other names in it are its own business."""
    package = importlib.import_module(name)
    offered = [
        alias.name
        for node in ast.walk(TREES[name])
        if isinstance(node, ast.ImportFrom)
        for alias in node.names
        if alias.asname == alias.name
    ]
    assert not [public for public in offered if public.startswith("_")]
    undocumented = [
        public
        for public in offered
        if inspect.isroutine(value := getattr(package, public)) or inspect.isclass(value)
        if not value.__doc__
    ]
    assert not undocumented


def test_facades_hold_no_logic():
    """Definitions have a module of their own, where a reader looks for them."""
    lazy_names = {"__getattr__", "__dir__"}
    defining = [
        f"{name}.{node.name}"
        for name in FACADES
        for node in TREES[name].body
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef)
        if node.name not in lazy_names
    ]
    assert not defining


def error_classes() -> list[type[Exception]]:
    """Returns everything in errors.py that is raised, which the common base is not."""
    return [
        value
        for value in vars(errors).values()
        if inspect.isclass(value) and issubclass(value, errors.ThunderError)
        if value is not errors.ThunderError
    ]


def names_in(*roots: ast.AST) -> set[str]:
    """Returns all identifiers and attribute names below `roots`."""
    nodes = [node for root in roots for node in ast.walk(root)]
    plain = {node.id for node in nodes if isinstance(node, ast.Name)}
    return plain | {node.attr for node in nodes if isinstance(node, ast.Attribute)}


@pytest.fixture(scope="module")
def expected_by_tests() -> set[str]:
    """The names inside every `pytest.raises(...)` and `pytest.warns(...)` of the tests."""
    calls = [
        node
        for path in sorted(TESTS.rglob("*.py"))
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.Call) and names_in(node.func) & {"raises", "warns"}
    ]
    return {name for call in calls for name in names_in(*call.args)}


@pytest.mark.parametrize("error", error_classes(), ids=lambda error: error.__name__)
def test_error_is_raised_and_tested(error, expected_by_tests):
    """A message that no test has provoked is a message that nobody has read."""
    users = [name for name, tree in TREES.items() if error.__name__ in names_in(tree)]
    assert users, "raised nowhere: remove it"
    assert error.__name__ in expected_by_tests, "no test provokes it"


def test_errors_live_in_one_module():
    elsewhere = [
        f"{name}.{node.name}"
        for name, tree in TREES.items()
        if name != "thunder.errors"
        for node in ast.walk(tree)
        if isinstance(node, ast.ClassDef)
        if any(base.endswith(("Error", "Exception")) for base in names_in(*node.bases))
    ]
    assert not elsewhere


def test_installed_entry_points_load():
    points = distribution("thunderfx").entry_points
    assert {"torch_dynamo_backends"} <= {point.group for point in points}
    for point in points:
        assert callable(point.load()), point
