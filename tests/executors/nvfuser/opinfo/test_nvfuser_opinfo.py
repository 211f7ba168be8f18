"""OpInfo samples agree with eager through the fake nvFuser. Run by naming this folder."""

from __future__ import annotations

import pytest

from tests.executors.nvfuser.samples import dtypes, operators, run_samples

CASES = [(info, dtype) for info in operators() for dtype in dtypes(info, "cpu")]
IDS = [f"{info.name}-{str(dtype).removeprefix('torch.')}" for info, dtype in CASES]


@pytest.mark.parametrize(("info", "dtype"), CASES, ids=IDS)
def test_samples(info, dtype):
    refused = run_samples(info, "cpu", dtype)
    if refused:
        pytest.skip(f"no sample is taken: {refused}")
