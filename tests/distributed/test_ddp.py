"""DistributedDataParallel around and inside thunderfx, in real processes."""

from __future__ import annotations

from tests.distributed import ddp_ranks
from tests.distributed.launching import run_ranks


def test_ddp(tmp_path):
    run_ranks(ddp_ranks.around_and_inside, tmp_path)
