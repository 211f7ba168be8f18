"""A rank that fails: what it leaves behind, and what becomes of the others."""

from __future__ import annotations

import pytest

from tests.distributed import failing_ranks
from tests.distributed.expectations import (
    assert_files_of_each_rank,
    assert_nothing_was_sent_twice,
    assert_one_rank_raised,
)
from tests.distributed.launching import run_ranks


def test_one_rank_raises(tmp_path):
    assert_one_rank_raised(tmp_path)


@pytest.mark.slow
def test_nothing_is_sent_twice(tmp_path):
    """test_first_run.py has the quick part, in one process."""
    assert_nothing_was_sent_twice(tmp_path)


@pytest.mark.slow
def test_one_rank_falls_back(tmp_path):
    run_ranks(failing_ranks.goes_on_on_all_ranks, tmp_path)


@pytest.mark.slow
def test_files_of_each_rank(tmp_path):
    """tests/debug/test_processes.py has the quick part: two ranks that write by turns."""
    assert_files_of_each_rank(tmp_path)
