"""Tensor parallelism with DTensor inside thunderfx, in real processes."""

from __future__ import annotations

import pytest

from tests.distributed import tensor_parallel_ranks
from tests.distributed.launching import run_ranks


def test_tensor_parallel(tmp_path):
    run_ranks(tensor_parallel_ranks.around_and_inside, tmp_path)


@pytest.mark.slow
def test_two_dimensions(tmp_path):
    run_ranks(tensor_parallel_ranks.two_dimensions, tmp_path, world_size=4)
