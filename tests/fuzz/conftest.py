"""Adds up the programs of all tests at the end of a run."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import pytest

LONG = ("test_programs.py", "test_splits.py")
"""What runs when this folder is named, and is no part of `make test`."""


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    is_named = any("fuzz" in argument for argument in config.args)
    return True if collection_path.name in LONG and not is_named else None


@pytest.fixture(autouse=True)
def _reproducers_out_of_the_way(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Programs may fail that aot_eager fails at too; their reproducers are of no interest."""
    monkeypatch.setenv("THUNDER_DEBUG_DIR", str(tmp_path))


def pytest_terminal_summary(terminalreporter: Any) -> None:
    total: Counter[str] = Counter()
    for report in terminalreporter.stats.get("passed", ()):
        for name, value in report.user_properties:
            if report.when == "call" and name == "programs":
                total.update(value)
    if total:
        terminalreporter.section("generated programs")
        for name, count in sorted(total.items()):
            terminalreporter.line(f"{count:7} {name}")
