"""Rounding raises no alarm; a wrong operator does."""

from __future__ import annotations

import json
import math

import pytest
import torch
from torch.nn import functional as F

from thunder.trace import accuracy
from thunder.trace.accuracy import AccuracyVerdict, Distance, compare_to_reference
from thunder.trace.float64 import run_in_float64


def judge(eager_program, other_program, *inputs):
    """Judges another way to compute the same thing."""
    reference = run_in_float64(lambda: eager_program(*inputs))
    return compare_to_reference(eager_program(*inputs), other_program(*inputs), reference)


def fused_softmax(x):
    powers = (x - x.amax(-1, keepdim=True)).double().exp()
    return (powers / powers.sum(-1, keepdim=True)).to(x.dtype)


def fused_layer_norm(x):
    wide = x.float() if x.dtype in (torch.float16, torch.bfloat16) else x
    centered = wide - wide.mean(-1, keepdim=True)
    variance = wide.square().mean(-1, keepdim=True) - wide.mean(-1, keepdim=True).square()
    return (centered * (variance + 1e-5).rsqrt()).to(x.dtype)


def blocked_sum(x):
    return x.view(-1, 128).sum(0).sum()


def running_sum(x):
    return x.view(64, -1).cumsum(0)[-1].sum()


DTYPES = [torch.bfloat16, torch.float16, torch.float32, torch.float64]


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("dtype", DTYPES)
def test_rounding_is_no_alarm(dtype, seed):
    torch.manual_seed(seed)
    x = torch.randn(64, 256).mul(4).to(dtype)
    assert judge(lambda x: torch.softmax(x, -1), fused_softmax, x).accurate
    assert judge(lambda x: F.layer_norm(x, [256]), fused_layer_norm, x).accurate
    for reduction in (blocked_sum, running_sum):
        assert judge(lambda x: x.view(-1).sum(), reduction, x).accurate
    assert judge(lambda x: x.exp().log() * x.sigmoid(), _by_exp2, x.clamp(-5, 5)).accurate


def _by_exp2(x):
    wide = x.float() if x.dtype in (torch.float16, torch.bfloat16) else x
    return (wide.mul(math.log2(math.e)).exp2().log() / (1 + (-wide).exp())).to(x.dtype)


@pytest.mark.parametrize("dtype", DTYPES)
def test_a_matmul_in_another_order_is_no_alarm(dtype):
    a, b = torch.randn(32, 512).to(dtype), torch.randn(512, 32).to(dtype)
    split = judge(
        lambda a, b: a @ b, lambda a, b: sum(a[:, i::4] @ b[i::4] for i in range(4)), a, b
    )
    assert split.accurate, split


WRONG = [
    (lambda x: x.relu(), lambda x: F.gelu(x)),
    (lambda x: torch.softmax(x, -1), lambda x: torch.softmax(x, 0)),
    (lambda x: F.layer_norm(x, [256]), lambda x: F.layer_norm(x, [256], eps=0.5)),
    (lambda x: x.sin(), lambda x: x),
    (lambda x: x.sum(-1), lambda x: x[:, :-1].sum(-1)),
    (lambda x: x.view(-1).std(), lambda x: x.view(-1).mean()),
    (lambda x: x.square(), lambda x: x.square() * 1.1),
    (lambda x: x.argmax(-1), lambda x: x.argmin(-1)),
    (lambda x: x > 0, lambda x: x >= 0.5),
]


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("pair", WRONG)
def test_a_wrong_operator_is_an_alarm(pair, dtype):
    verdict = judge(*pair, torch.randn(64, 256).to(dtype))
    assert not verdict.accurate
    assert verdict.wrong[0].compiled is not None


def test_one_wrong_element_of_many():
    x = torch.randn(1 << 16).to(torch.bfloat16)
    wrong = x.exp()
    wrong[-1] += 20
    verdict = compare_to_reference(x.exp(), wrong, x.double().exp())
    assert not verdict.accurate


def test_tiny_values_get_no_absolute_tolerance():
    x = torch.rand(100) * 1e-9
    verdict = compare_to_reference(x, x * 1.5, x.double())
    assert not verdict.accurate


def test_what_is_explained_is_no_alarm():
    """A sum that cancels: eager happens to be exact, another order is not."""
    x = torch.tensor([1e8, 1.0, -1e8])
    eager, compiled, reference = x[[0, 2, 1]].sum(), (x[0] + x[1]) + x[2], x.double().sum()
    assert not compare_to_reference(eager, compiled, reference).accurate
    moved = (x.double() * (1 + 1e-7 * torch.tensor([1.0, 0, -1]))).sum()
    assert compare_to_reference(eager, compiled, reference, explained=[moved]).accurate


inf, nan = math.inf, math.nan


@pytest.mark.parametrize(
    "eager, compiled, reference, is_accurate",
    [
        ([nan, 1.0], [nan, 1.0], [nan, 1.0], True),
        ([inf, 1.0], [inf, 1.0], [inf, 1.0], True),
        ([inf, 1.0], [1e5, 1.0], [1e5, 1.0], True),  # eager overflowed
        ([inf, 1.0], [inf, 1.0], [1e5, 1.0], True),  # both did
        ([inf, 1.0], [-inf, 1.0], [1e5, 1.0], False),
        ([1.0, 1.0], [nan, 1.0], [1.0, 1.0], False),
        ([nan, 1.0], [0.0, 1.0], [nan, 1.0], False),
        ([inf, 1.0], [2e5, 1.0], [1e5, 1.0], False),
        ([nan, 1.0], [nan, 2.0], [nan, 1.0], False),
    ],
)
def test_infinities_and_nans(eager, compiled, reference, is_accurate):
    values = [torch.tensor(value) for value in (eager, compiled)]
    truth = torch.tensor(reference, dtype=torch.float64)
    assert compare_to_reference(values[0], values[1], truth).accurate is is_accurate


def test_structure():
    x, wide = torch.ones(2), torch.ones(2).double()
    missing = compare_to_reference({"a": x, "b": x}, {"a": x}, {"a": wide, "b": wide})
    assert [output.name for output in missing.wrong] == ["['b']"]
    assert "missing" in missing.wrong[0].reason
    more = compare_to_reference([x], [x, x], [wide])
    assert [output.name for output in more.wrong] == ["[1]"]
    shape = compare_to_reference(x, torch.ones(3), wide)
    assert shape.wrong[0].reason == "is float32[3] instead"
    dtype = compare_to_reference(x, x.half(), wide)
    assert dtype.wrong[0].reason == "is float16[2] instead"
    assert compare_to_reference((x, None), [x, None], (wide, None)).accurate
    assert not compare_to_reference((x, None), [x, x], (wide, None)).accurate


def test_plain_values():
    assert compare_to_reference([1, "a", 0.1], [1, "a", 0.1 + 1e-9], [1, "a", 0.1]).accurate
    assert not compare_to_reference([1], [2], [1]).accurate
    assert not compare_to_reference(["a"], ["b"], ["a"]).accurate
    assert not compare_to_reference([0.1], [0.2], [0.1]).accurate
    assert not compare_to_reference([True], [1], [True]).accurate


def test_without_reference_the_usual_tolerance_holds():
    x = torch.randn(8)
    assert compare_to_reference(x, x + 1e-7, None).accurate
    verdict = compare_to_reference(x, x + 1, None, note="float64 is not known to an operator")
    assert not verdict.accurate
    assert "differs from eager" in verdict.wrong[0].reason
    assert "not known" in str(verdict)


def test_complex_sparse_empty_and_wrapped():
    z = torch.randn(8, dtype=torch.complex64)
    assert compare_to_reference(z.conj(), z.conj() * (1 + 1e-7), z.conj().to(torch.complex128))
    assert not compare_to_reference(z, z.conj(), z.to(torch.complex128)).accurate
    s = torch.eye(3).to_sparse()
    assert compare_to_reference(s, s, s.double()).accurate
    empty = torch.empty(0)
    assert compare_to_reference(empty, empty, empty.double()).accurate
    nested = torch.nested.nested_tensor([torch.ones(2), torch.ones(3)], layout=torch.jagged)
    verdict = compare_to_reference(nested, nested * 2, nested.double())
    assert [output.name.rpartition(".")[2] for output in verdict.wrong] == ["_values"]


def test_chunks_add_up(monkeypatch):
    x = torch.randn(1000)
    whole = compare_to_reference(x, x + 0.1, x.double()).wrong[0].compiled
    monkeypatch.setattr(accuracy, "_CHUNK", 7)
    parts = compare_to_reference(x, x + 0.1, x.double()).wrong[0].compiled
    assert whole is not None
    assert parts is not None
    assert parts.rms == pytest.approx(whole.rms)
    assert parts.largest == whole.largest


def test_json_round_trip():
    x = torch.ones(2)
    verdict = compare_to_reference([x, 1], [x * 2, 1], [x.double(), 1], note="a note")
    text = json.dumps(verdict.to_json(), allow_nan=False)
    assert AccuracyVerdict.from_json(json.loads(text)) == verdict
    far = Distance(rms=math.inf, largest=math.inf, mismatches=2)
    assert Distance.from_json(json.loads(json.dumps(far.to_json(), allow_nan=False))) == far


def test_sums_over_many_rows_are_no_wrong_answers():
    """Eager adds up in pairs, compilers in a loop; a term left out is still found."""
    x = torch.rand(1024, 64) + 0.5
    eager, reference = [x, x.sum(0)], [x.double(), x.double().sum(0)]
    in_a_loop = torch.zeros(64)
    for row in x:
        in_a_loop += row
    assert not torch.equal(in_a_loop, eager[1])
    assert compare_to_reference(eager, [x, in_a_loop], reference).accurate
    one_less = [x, in_a_loop - x[7]]
    assert not compare_to_reference(eager, one_less, reference).accurate
