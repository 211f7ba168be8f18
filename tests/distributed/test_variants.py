"""The rarer settings of DDP, FSDP2 and tensor parallelism, in real processes."""

from __future__ import annotations

import pytest

from tests.distributed import variant_ranks
from tests.distributed.launching import run_ranks


@pytest.mark.slow
def test_variants(tmp_path):
    run_ranks(variant_ranks.variants, tmp_path)
