"""Layouts, sizes, aliases and numbers at the edges agree with eager through the fake nvFuser."""

from __future__ import annotations

import pytest

from tests.executors.nvfuser.edges import LAYOUTS, OUTPUTS, aliases
from tests.executors.nvfuser.harness import check_against_eager


@pytest.mark.parametrize("name", LAYOUTS)
def test_layouts(name):
    function, make = LAYOUTS[name]
    check_against_eager(function, make("cpu"))


@pytest.mark.parametrize("name", OUTPUTS)
def test_outputs(name):
    function, make = OUTPUTS[name]
    inputs = make("cpu")
    region = check_against_eager(function, inputs)
    assert aliases(region(*inputs), inputs) == aliases(function(*inputs), inputs)
