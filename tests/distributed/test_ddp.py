"""DistributedDataParallel around and inside thunderfx, in real processes."""

from __future__ import annotations

import pytest

from tests.distributed import ddp_ranks
from tests.distributed.launching import run_ranks


def test_ddp(tmp_path):
    run_ranks(ddp_ranks.around_and_inside, tmp_path)


@pytest.mark.slow
def test_one_verdict(tmp_path):
    run_ranks(ddp_ranks.one_verdict, tmp_path, seconds=400)


@pytest.mark.slow
def test_ddp_by_inductor(tmp_path):
    run_ranks(ddp_ranks.around_and_inside, tmp_path, executors="auto", seconds=400)
