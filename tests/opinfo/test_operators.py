"""All samples of all operators.

make opinfo                               everything, op by op
make opinfo ARGS='-k "softmax or sum"'    some operators
"""

from __future__ import annotations

import pytest
import torch

from tests.opinfo.calls import OPERATORS
from tests.opinfo.checking import EXCUSES, check, check_failures, check_some
from tests.opinfo.running import by_aot_eager_whole, by_jit, run_operator
from thunder import thunderfx

FUSED = (
    "add",
    "nn.functional.gelu",
    "nn.functional.layer_norm",
    "softmax",
    "sum",
    "where",
)
"""Operators that are tried through Inductor as well; each kernel costs seconds."""


@pytest.mark.parametrize("name", OPERATORS)
def test_as_in_eager(name, request):
    check(name, run_operator(name), request)


@pytest.mark.parametrize("name", OPERATORS)
def test_through_jit(name, request):
    """Below Dynamo, `jit` is `thunderfx`; what differs is that a graph break is an error.

    Of an operator that breaks the graph, nothing passes.
    """
    outcome = run_operator(name, by_jit, rule=by_aot_eager_whole, limit=1)
    check_failures(name, outcome, request)


@pytest.mark.parametrize("name", FUSED)
def test_through_inductor(name, request):
    def compile(function):
        return thunderfx(function, executors=["inductor", "aten"], on_failure="raise")

    dtypes = [torch.float32, torch.bfloat16]
    outcome = run_operator(name, compile, dtypes=dtypes, limit=12, rounding_matters=False)
    check_some(name, outcome, request)


def test_excuses_name_operators():
    assert [excuse for excuse in EXCUSES if excuse.operator not in OPERATORS] == []
