"""FSDP2 around and inside thunderfx, in real processes."""

from __future__ import annotations

from tests.distributed import fsdp_ranks
from tests.distributed.launching import run_ranks


def test_fsdp(tmp_path):
    run_ranks(fsdp_ranks.around_and_inside, tmp_path)
