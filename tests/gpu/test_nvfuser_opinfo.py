"""PyTorch's OpInfo samples, for the operators with lowerings, on a real GPU."""

from __future__ import annotations

import pytest

from thunder.executors.nvfuser import available

pytest.importorskip("expecttest", reason="torch's OpInfo samples need the package expecttest")

from tests.executors.nvfuser.samples import dtypes, operators, run_samples

if (missing := available()) is not None:
    pytest.skip(missing.reason, allow_module_level=True)

CASES = [(info, dtype) for info in operators() for dtype in dtypes(info, "cuda")]
IDS = [f"{info.name}-{str(dtype).removeprefix('torch.')}" for info, dtype in CASES]


@pytest.mark.parametrize(("info", "dtype"), CASES, ids=IDS)
def test_samples(info, dtype):
    refused = run_samples(info, "cuda", dtype)
    if refused:
        pytest.skip(f"no sample is taken: {refused}")
