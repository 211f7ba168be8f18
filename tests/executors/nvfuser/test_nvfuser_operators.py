"""Every lowering, called as the table of calls says, agrees with eager through the fake nvFuser."""

from __future__ import annotations

import pytest

from tests.executors.nvfuser.calls import CALLS, label, parameters, prepare
from tests.executors.nvfuser.harness import check_against_eager
from thunder.executors.nvfuser.operators import FAMILIES, LOWERINGS, MATRIX_PRODUCTS

PARAMETERS = parameters("cpu")
IDS = [label(*entry, place) for place, entry in enumerate(PARAMETERS)]


def test_every_lowering_is_called():
    elsewhere = {"prims.inductor_random.default", *FAMILIES["symbolic"]}
    assert set(LOWERINGS) - set(CALLS) == elsewhere


@pytest.mark.parametrize(("name", "call", "dtype"), PARAMETERS, ids=IDS)
def test_agrees_with_eager(name, call, dtype):
    function, inputs = prepare(name, call, dtype, "cpu")
    check_against_eager(function, inputs, matmul=name in MATRIX_PRODUCTS)
