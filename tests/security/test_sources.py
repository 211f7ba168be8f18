"""What the package's own code, and that of its scripts, may not do."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

import thunder

PACKAGE = Path(thunder.__file__).parent
FILES = sorted(PACKAGE.rglob("*.py"))
UNPICKLING = {"pickle", "cPickle", "dill", "marshal", "shelve", "joblib", "cloudpickle"}
RUNS_TEXT = {
    "diagnose/target.py": "an expression of the script that the user asked to minimize",
    "dynamo/report/example_inputs.py": "recipes that it recorded itself, as scripts have them",
    "trace/trace.py": "the program that it printed itself, for `python_callable`",
}
"""Modules that call exec or eval, and on what."""


def calls(path):
    tree = ast.parse(path.read_text(encoding="utf-8"))
    return [node for node in ast.walk(tree) if isinstance(node, ast.Call)]


def name_of(call):
    return ast.unparse(call.func)


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(PACKAGE)))
def test_a_module(path):
    for call in calls(path):
        name = name_of(call)
        keywords = {keyword.arg: ast.unparse(keyword.value) for keyword in call.keywords}
        if name == "torch.load":
            assert keywords.get("weights_only") == "True", f"{path}:{call.lineno}"
        assert name.partition(".")[0] not in UNPICKLING, f"{path}:{call.lineno}: {name}"
        assert name not in ("os.system", "os.popen", "yaml.load"), f"{path}:{call.lineno}: {name}"
        assert keywords.get("shell", "False") == "False", f"{path}:{call.lineno}: a shell"
        if name in ("exec", "eval"):
            assert str(path.relative_to(PACKAGE)) in RUNS_TEXT, f"{path}:{call.lineno}: {name}"


def test_the_list_of_what_runs_text_is_up_to_date():
    found = {
        str(path.relative_to(PACKAGE))
        for path in FILES
        if any(name_of(call) in ("exec", "eval") for call in calls(path))
    }
    assert found == set(RUNS_TEXT)
