"""Every lowering, called as the table of calls says, agrees with eager through the fake nvFuser."""

from __future__ import annotations

import pytest
import torch

from tests.executors.nvfuser.call_table import CALLS, CUDA_ONLY, calls_of
from tests.executors.nvfuser.calls import prepare
from tests.executors.nvfuser.harness import check_against_eager
from thunder.executors.nvfuser.operators import FAMILIES, LOWERINGS, MATRIX_PRODUCTS

NAMES = sorted(set(CALLS) - CUDA_ONLY)
WIDE = sorted(
    name
    for family in ("batch_norm", "losses", "normalization", "reductions", "softmax")
    for name in set(FAMILIES[family]) - CUDA_ONLY
)
"""Operators that say themselves in which dtype they compute."""


def test_every_lowering_is_called():
    assert set(LOWERINGS) - set(CALLS) == set(FAMILIES["symbolic"])


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("name", NAMES)
def test_agrees_with_eager(name, dtype):
    check(name, dtype)


@pytest.mark.parametrize("name", WIDE)
def test_agrees_with_eager_in_double(name):
    check(name, torch.float64)


def check(name, dtype):
    for call in calls_of(name, dtype, "cpu"):
        function, inputs = prepare(name, call, dtype, "cpu")
        check_against_eager(function, inputs, matmul=name in MATRIX_PRODUCTS)
