"""Programs as models contain them agree with eager through the fake nvFuser."""

from __future__ import annotations

import pytest

from tests.executors.nvfuser.harness import (
    compare,
    compiled_by_aot,
    differentiated,
    executor_for,
    with_reference,
)
from tests.executors.nvfuser.programs import PROGRAMS

CASES = [(program, dtype) for program in PROGRAMS for dtype in program.dtypes]
IDS = [f"{program.name}-{str(dtype).removeprefix('torch.')}" for program, dtype in CASES]


@pytest.mark.parametrize(("program", "dtype"), CASES, ids=IDS)
def test_agrees_with_eager(program, dtype):
    inputs = program.make("cpu", dtype)
    compiled, regions = compiled_by_aot(program.function, executor_for("cpu"))
    run = differentiated if program.backward else lambda function, given: function(*given)
    expected, reference = with_reference(lambda *given: run(program.function, given), inputs)
    for _ in range(2):
        results = run(compiled, inputs)
        results = list(results) if isinstance(results, list | tuple) else [results]
        compare(results, expected, reference, exact_strides=False)
    assert regions
