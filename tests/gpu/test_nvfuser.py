"""nvFuser regions on a real GPU agree with eager: every lowering, programs, edges, scripts."""

from __future__ import annotations

import pytest
import torch

from tests.executors.nvfuser.call_table import CALLS, calls_of
from tests.executors.nvfuser.calls import prepare
from tests.executors.nvfuser.edges import LAYOUTS, OUTPUTS, aliases, compute, normal
from tests.executors.nvfuser.harness import (
    check_against_eager,
    compare,
    compile_region,
    compiled_by_aot,
    differentiated,
    executor_for,
    with_reference,
)
from tests.executors.nvfuser.programs import PROGRAMS
from tests.executors.nvfuser.symbolic_programs import FUNCTIONS, check
from thunder.errors import ExecutorError
from thunder.executors.nvfuser import available
from thunder.executors.nvfuser.descriptors import describe_layout
from thunder.executors.nvfuser.library import load
from thunder.executors.nvfuser.operators import MATRIX_PRODUCTS

if (missing := available()) is not None:
    pytest.skip(missing.reason, allow_module_level=True)

CASES = [(program, dtype) for program in PROGRAMS for dtype in program.dtypes]
KNOWN_FAILURES = {
    ("group_norm", torch.float32): "nvFuser 0.2.36 asserts in domain_map.cpp: Expected any_bcast",
}
CASE_IDS = [f"{program.name}-{str(dtype).removeprefix('torch.')}" for program, dtype in CASES]


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("name", sorted(CALLS))
def test_operator(name, dtype):
    for call in calls_of(name, dtype, "cuda"):
        function, inputs = prepare(name, call, dtype, "cuda")
        check_against_eager(function, inputs, matmul=name in MATRIX_PRODUCTS)


@pytest.mark.parametrize(("program", "dtype"), CASES, ids=CASE_IDS)
def test_program(request, program, dtype):
    if (reason := KNOWN_FAILURES.get((program.name, dtype))) is not None:
        request.applymarker(pytest.mark.xfail(raises=ExecutorError, reason=reason))
    inputs = program.make("cuda", dtype)
    compiled, regions = compiled_by_aot(program.function, executor_for("cuda"))
    run = differentiated if program.backward else lambda function, given: function(*given)
    expected, reference = with_reference(lambda *given: run(program.function, given), inputs)
    for _ in range(2):
        results = run(compiled, inputs)
        results = list(results) if isinstance(results, list | tuple) else [results]
        compare(results, expected, reference, exact_strides=False)
    assert regions


@pytest.mark.parametrize("name", LAYOUTS)
def test_layout(name):
    function, make = LAYOUTS[name]
    check_against_eager(function, make("cuda"))


@pytest.mark.parametrize("name", OUTPUTS)
def test_outputs(name):
    function, make = OUTPUTS[name]
    inputs = make("cuda")
    region = check_against_eager(function, inputs)
    assert aliases(region(*inputs), inputs) == aliases(function(*inputs), inputs)


def test_another_layout_than_traced():
    region = compile_region(compute, [normal(4, 6, device="cuda"), normal(4, 6, device="cuda")])
    for name in ("contiguous", "transposed", "row_slice", "column_slice", "expanded", "step_slice"):
        inputs = LAYOUTS[name][1]("cuda")
        torch.testing.assert_close(region(*inputs)[0], compute(*inputs))
        assert region(*inputs)[0].stride() == (6, 1)
    assert len(region.variants) > 3


@pytest.mark.parametrize(
    ("sizes", "strides"),
    [
        ((4, 5, 6), (30, 6, 1)),
        ((4, 5), (1, 4)),
        ((2, 3, 4, 5), (60, 1, 15, 3)),
        ((4, 1, 6), (6, 6, 1)),
        ((4, 1, 6), (6, 77, 1)),
        ((4, 5, 6), (6, 0, 1)),
        ((4, 5), (10, 1)),
        ((4, 5), (10, 2)),
        ((), ()),
        ((2, 3, 4), (0, 4, 1)),
        ((1, 1), (1, 1)),
        ((3, 4, 5), (0, 0, 1)),
    ],
)
def test_descriptors_are_those_of_nvfuser(sizes, strides):
    contiguity, order = load().compute_tensor_descriptor(list(sizes), list(strides))
    described = describe_layout(sizes, strides)
    assert list(described.contiguity) == list(contiguity)
    assert list(described.stride_order) == list(order)


def test_indices_out_of_range_are_seen():
    rows, index = normal(4, 6, device="cuda"), torch.tensor([[0], [9], [-1], [5]], device="cuda")
    region = compile_region(lambda x, i: torch.ops.aten.gather(x * 2, 1, i), [rows, index])
    (result,) = region(rows, index)
    assert torch.isnan(result[:, 0]).tolist() == [False, True, True, False]


def test_printed_source_runs():
    inputs = [normal(8, 40, device="cuda", dtype=torch.bfloat16), normal(40, device="cuda")]
    region = compile_region(
        lambda x, w: torch.nn.functional.softmax(x * 0.1234567891 + w.view(1, 40), -1), inputs
    )
    expected = region(*inputs)
    source = region.source()
    scope = {"inputs": inputs}
    exec(source.script(), scope)
    results = eval(source.execution, scope)
    assert all(torch.equal(a, b) for a, b in zip(results, expected, strict=True))


def test_kernels_are_shown():
    executor = executor_for("cuda")
    region = compile_region(compute, LAYOUTS["contiguous"][1]("cuda"))
    for _ in range(2):
        text = executor.generated_code(region)
        assert text is not None
        assert "__global__ void nvfuser_" in text and "fd.ops.tanh" in text


@pytest.mark.parametrize("function", FUNCTIONS)
@pytest.mark.parametrize("training", [True, False])
def test_symbolic_sizes(function, training):
    check(function, "cuda", training)
