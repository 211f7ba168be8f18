"""Adds up the samples of all tests at the end of a run."""

from __future__ import annotations

import os
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

LONG = ("test_operators.py",)
"""What runs when this folder is named, and is no part of `make test`."""


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    is_named = any("opinfo" in argument for argument in config.args)
    return True if collection_path.name in LONG and not is_named else None


@pytest.fixture(autouse=True)
def _reproducers_out_of_the_way(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Samples may fail that aot_eager fails at too; their reproducers are of no interest."""
    monkeypatch.setenv("THUNDER_DEBUG_DIR", str(tmp_path))


def pytest_terminal_summary(terminalreporter: Any) -> None:
    """Prints how many samples passed; OPINFO_RULE names a file for what aot_eager fails at."""
    total: Counter[str] = Counter()
    by_rule: list[str] = []
    for outcome in ("passed", "failed"):
        for report in terminalreporter.stats.get(outcome, ()):
            for name, value in getattr(report, "user_properties", ()):
                if report.when == "call" and name == "samples":
                    total.update(value)
                if report.when == "call" and name == "by rule":
                    by_rule += value
    if not total:
        return
    terminalreporter.section("operator samples")
    for name, count in sorted(total.items()):
        terminalreporter.line(f"{count:7} {name}")
    if path := os.environ.get("OPINFO_RULE"):
        Path(path).write_text("\n".join([*sorted(by_rule), ""]))
