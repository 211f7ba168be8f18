"""Adds up what became of all architectures at the end of a run, and writes it to a file."""

from __future__ import annotations

import json
import os
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

LONG = ("test_zoo.py", "test_scripts.py", "test_generation.py", "test_workers.py")
"""What runs when this folder is named, and is no part of `make test`."""


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    is_named = any("zoo" in argument for argument in config.args)
    return True if collection_path.name in LONG and not is_named else None


@pytest.fixture(autouse=True)
def _reproducers_out_of_the_way(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """What fails fails through aot_eager too, or in a test: no file is of interest."""
    monkeypatch.setenv("THUNDER_DEBUG_DIR", str(tmp_path))


def pytest_terminal_summary(terminalreporter: Any, config: pytest.Config) -> None:
    """Prints how many passed; the records go to `zoo.jsonl` in pytest's cache, or ZOO_RESULTS."""
    records = [
        value
        for outcome in ("passed", "failed")
        for report in terminalreporter.stats.get(outcome, ())
        if getattr(report, "when", None) == "call"
        for name, value in getattr(report, "user_properties", ())
        if name == "zoo"
    ]
    if not records:
        return
    path = Path(os.environ.get("ZOO_RESULTS") or config.cache.mkdir("zoo") / "zoo.jsonl")
    path.write_text("".join(json.dumps(record) + "\n" for record in records))
    terminalreporter.section("architectures")
    for line in _summary(records):
        terminalreporter.line(line)
    terminalreporter.line(f"records: {path}")


def _summary(records: list[dict[str, Any]]) -> list[str]:
    made = [record for record in records if record["judgements"]]
    verdicts = Counter((each["mode"], each["verdict"]) for x in made for each in x["judgements"])
    judgements = [each for record in made for each in record["judgements"]]
    return [
        f"{len(records):7} tried, {len(made)} made",
        *(f"{count:7} {mode}: {verdict}" for (mode, verdict), count in sorted(verdicts.items())),
        f"{sum(x['graphs'] for x in judgements):7} graphs",
        f"{sum(len(x['splits']) for x in judgements):7} splits",
    ]
