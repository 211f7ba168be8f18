"""Every example in the package's docstrings runs and shows what it says.

They run as tests of this folder, not through `--doctest-modules`, so that they start as other
tests do: with one thread, fixed seeds and a clean Dynamo.
"""

from __future__ import annotations

import doctest
import importlib
from pathlib import Path

import pytest

import thunder

PACKAGE = Path(thunder.__file__).parent
OPTIONS = doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE
WITH_EXAMPLES = [path for path in sorted(PACKAGE.rglob("*.py")) if ">>> " in path.read_text()]


def module_name(path: Path) -> str:
    """Returns the dotted name of one of the package's files."""
    dotted = ".".join(path.relative_to(PACKAGE.parent).with_suffix("").parts)
    return dotted.removesuffix(".__init__")


@pytest.mark.parametrize("name", [module_name(path) for path in WITH_EXAMPLES])
def test_docstring_examples(name, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    report: list[str] = []
    runner = doctest.DocTestRunner(optionflags=OPTIONS)
    for test in doctest.DocTestFinder().find(importlib.import_module(name), name):
        # Dynamo tidies up in the globals of what it compiled, later than doctest clears them.
        runner.run(test, out=report.append, clear_globs=False)
    assert runner.summarize(verbose=False).attempted
    assert not report, "".join(report)
