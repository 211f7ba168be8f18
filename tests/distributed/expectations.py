"""How runs must end in which not every rank succeeds, on CPU and on GPUs, and what they leave."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from tests.distributed import failing_ranks, writing_ranks
from tests.distributed.launching import describe, run_ranks, start_ranks

COLLECTIVE_SECONDS = 8.0
END_SECONDS = 90.0
"""Far less than a hang: two starts of torch, checking the script, and the wait for the others."""


def assert_one_rank_raised(folder: Path, **options: Any) -> None:
    """The rank that fails names the cause and leaves its script; the other ends as well."""
    dump, outcomes, story = _run_failing(failing_ranks.raises_on_one_rank, folder, options)
    assert "the kernel of this rank is broken" in outcomes[1].output, story
    assert "the kernel of this rank is broken" not in outcomes[0].output, story
    (script,) = dump.glob("*.py")
    assert script.name == "graph0_thunder_0_reproducer_rank1.py"
    assert f"Reproducer: {script}" in outcomes[1].output, story
    assert "# Verdict: confirmed: fails with ExecutorError: broken_gelu" in script.read_text()


def assert_nothing_was_sent_twice(folder: Path, **options: Any) -> None:
    """A rank that fails between two collectives ends, and so does the one that waits for it."""
    dump, outcomes, story = _run_failing(failing_ranks.fails_after_communicating, folder, options)
    assert "went on" not in outcomes[0].output, story
    assert "UnrepeatableRunError: broken_gelu" in outcomes[1].output, story
    assert "this rank alone cannot run it in another way" in outcomes[1].output, story
    script = dump / "graph0_thunder_0_reproducer_rank1.py"
    assert "# Verdict: confirmed: fails with UnrepeatableRunError" in script.read_text()


def assert_files_of_each_rank(folder: Path, **options: Any) -> None:
    """THUNDER_DEBUG=3 writes the same files for each rank into one folder."""
    dump = folder / "dump"
    environment = {"THUNDER_DEBUG": "3", "THUNDER_DEBUG_DIR": str(dump)}
    run_ranks(writing_ranks.writes_its_files, folder, environment=environment, **options)
    names = {path.name for path in dump.glob("*.py")}
    of_ranks = [
        {name.replace(f"_rank{rank}", "") for name in names if f"_rank{rank}." in name}
        for rank in (0, 1)
    ]
    assert of_ranks[0] == of_ranks[1]
    assert {f"graph0_thunder_0_{part}_trace.py" for part in ("forward", "backward")} <= of_ranks[0]
    lines = (dump / "index.jsonl").read_text().splitlines()
    assert {json.loads(line)["file"] for line in lines} >= names


def _run_failing(program: Any, folder: Path, options: dict[str, Any]) -> tuple[Path, Any, str]:
    dump = folder / "dump"
    outcomes = start_ranks(
        program,
        folder,
        collective_seconds=COLLECTIVE_SECONDS,
        environment={"THUNDER_DEBUG_DIR": str(dump)},
        **options,
    )
    story = describe(outcomes)
    assert all(outcome.ended_itself and outcome.status != 0 for outcome in outcomes), story
    assert all(outcome.seconds < END_SECONDS for outcome in outcomes), story
    return dump, outcomes, story
