"""A rank that fails: what it leaves behind, and what becomes of the others."""

from __future__ import annotations

from tests.distributed import failing_ranks
from tests.distributed.launching import describe, run_ranks, start_ranks


def test_one_rank_raises(tmp_path):
    outcomes = start_ranks(
        failing_ranks.raises_on_one_rank,
        tmp_path,
        collective_seconds=8,
        environment={"THUNDER_DEBUG_DIR": str(tmp_path / "dump")},
    )
    story = describe(outcomes)
    assert all(outcome.ended_itself and outcome.status == 1 for outcome in outcomes), story
    assert "the kernel of this rank is broken" in outcomes[1].output, story
    assert "the kernel of this rank is broken" not in outcomes[0].output, story
    names = sorted(path.name for path in (tmp_path / "dump").glob("*.py"))
    assert names == ["graph0_thunder_0_reproducer_rank1.py"], names


def test_one_rank_falls_back(tmp_path):
    run_ranks(failing_ranks.goes_on_on_all_ranks, tmp_path)


def test_nothing_is_sent_twice(tmp_path):
    """With one rank falling back, the others would get an answer to another question."""
    outcomes = start_ranks(
        failing_ranks.fails_after_communicating,
        tmp_path,
        collective_seconds=8,
        environment={"THUNDER_DEBUG_DIR": str(tmp_path / "dump")},
    )
    story = describe(outcomes)
    assert all(outcome.ended_itself and outcome.status == 1 for outcome in outcomes), story
    assert "UnrepeatableRunError" in outcomes[1].output, story
    assert "the kernel of this rank is broken" in outcomes[1].output, story
