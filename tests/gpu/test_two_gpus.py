"""The rank programs of tests/distributed over NCCL, a GPU for each rank."""

from __future__ import annotations

import pytest
import torch

from tests.distributed import (
    ddp_ranks,
    failing_ranks,
    fsdp_ranks,
    tensor_parallel_ranks,
    variant_ranks,
)
from tests.distributed.expectations import (
    assert_files_of_each_rank,
    assert_nothing_was_sent_twice,
    assert_one_rank_raised,
)
from tests.distributed.launching import run_ranks

pytestmark = pytest.mark.skipif(
    torch.cuda.device_count() < 2,
    reason="needs two GPUs; `python -m pytest tests/gpu/test_two_gpus.py` runs it where they are",
)

PROGRAMS = [
    ddp_ranks.around_and_inside,
    ddp_ranks.one_verdict,
    fsdp_ranks.around_and_inside,
    tensor_parallel_ranks.around_and_inside,
    variant_ranks.variants,
    failing_ranks.goes_on_on_all_ranks,
]


@pytest.mark.parametrize("program", PROGRAMS, ids=lambda p: f"{p.__module__}:{p.__name__}")
def test_programs(program, tmp_path):
    run_ranks(program, tmp_path, device="cuda", seconds=280, collective_seconds=120)


@pytest.mark.skipif(torch.cuda.device_count() < 4, reason="needs four GPUs")
def test_two_dimensions(tmp_path):
    run_ranks(
        tensor_parallel_ranks.two_dimensions, tmp_path, world_size=4, device="cuda", seconds=280
    )


def test_one_rank_raises(tmp_path):
    assert_one_rank_raised(tmp_path, device="cuda", seconds=200)


def test_nothing_is_sent_twice(tmp_path):
    assert_nothing_was_sent_twice(tmp_path, device="cuda", seconds=200)


def test_files_of_each_rank(tmp_path):
    assert_files_of_each_rank(tmp_path, device="cuda", seconds=200)
