"""Some samples of some operators: one or two of each kind. Part of `make test`."""

from __future__ import annotations

import pytest

from tests.opinfo.calls import Form
from tests.opinfo.checking import check_some
from tests.opinfo.excuses import Excuse, read_excuses, unexcused
from tests.opinfo.running import Failure, by_aot_eager_whole, by_jit, run_operator

QUICK = (
    "__getitem__",
    "add",
    "addmm",
    "allclose",
    "angle",
    "argmax",
    "as_strided",
    "bernoulli",
    "bitwise_and",
    "broadcast_tensors",
    "cat",
    "chunk",
    "clamp",
    "copysign",
    "cumsum",
    "diagonal",
    "div:floor_rounding",
    "einsum",
    "empty_like",
    "expand",
    "fft.rfft",
    "gather",
    "index_put",
    "isnan",
    "item",
    "lerp",
    "linalg.qr",
    "linalg.vector_norm",
    "logcumsumexp",
    "masked_fill",
    "masked_select",
    "max:reduction_with_dim",
    "mean",
    "nan_to_num",
    "narrow",
    "native_layer_norm",
    "nn.functional.batch_norm",
    "nn.functional.conv2d",
    "nn.functional.cross_entropy",
    "nn.functional.dropout",
    "nn.functional.embedding",
    "nn.functional.gelu",
    "nn.functional.interpolate:bilinear",
    "nn.functional.max_pool2d",
    "nn.functional.pad:reflect",
    "nn.functional.scaled_dot_product_attention",
    "nonzero",
    "normal",
    "permute",
    "pow",
    "real",
    "reshape",
    "scatter_add",
    "softmax",
    "sort",
    "special.zeta",
    "split",
    "squeeze",
    "sum",
    "tensor_split",
    "to",
    "tril",
    "unbind",
    "unique",
    "view_as_complex",
    "where",
)
SAMPLES = 3
"""At most about so many of each dtype and form."""


@pytest.mark.parametrize("name", QUICK)
def test_as_in_eager(name, request):
    check_some(name, run_operator(name, limit=SAMPLES), request)


@pytest.mark.parametrize("name", QUICK[::6])
def test_through_jit(name, request):
    check_some(name, run_operator(name, by_jit, rule=by_aot_eager_whole, limit=1), request)


def compile_wrongly(function):
    def wrong(given):
        return tuple(result + 1 for result in function(given))

    return wrong


def test_a_wrong_operator_is_found():
    outcome = run_operator("exp", compile_wrongly, limit=2)
    assert {each.dtype for each in outcome.failures} == {
        *("float32", "bfloat16", "int64", "bool", "complex64")
    }


def failure(**fields) -> Failure:
    wrong = {"operator": "add", "dtype": "int64", "form": Form.IN_PLACE, "sample": 3}
    return Failure(**{**wrong, "problem": "differs", **fields})


def test_excuses_cover_failures_and_stale_ones_are_named(tmp_path):
    path = tmp_path / "excused.txt"
    path.write_text("# why\nadd | int64 | * | because | of that\nadd | * | function | no more\n")
    excuses = read_excuses(path)
    wrong, stale = unexcused([failure(), failure(dtype="bool")], excuses)
    assert excuses[0] == Excuse(operator="add", dtype="int64", form="*", reason="because | of that")
    assert wrong == [failure(dtype="bool")]
    assert stale == [excuses[1]]
