"""Programs in float64: every operator, the same draws, the same writes."""

from __future__ import annotations

import pytest
import torch
from torch.nn import functional as F

from thunder.trace.float64 import Float64, RandomDraws, is_random, run_in_float64


def reference(function, *inputs, seed=0):
    """Runs `function` as it is and in float64; returns both results."""
    torch.manual_seed(seed)
    with RandomDraws() as draws:
        eager = function(*inputs)
    torch.manual_seed(seed + 1)
    return eager, run_in_float64(lambda: function(*inputs), draws.drawn)


def test_intermediate_roundings_disappear():
    x = torch.full((3,), 1 / 3, dtype=torch.bfloat16)
    eager, wide = reference(lambda x: (x.float() * 3).to(torch.float16) - 1, x)
    assert eager.dtype is torch.float16
    assert wide.dtype is torch.float64
    assert torch.equal(wide, x.double() * 3 - 1)


def test_factories_and_constants_are_wide():
    def program(x):
        return x.sum() * torch.full((4,), 0.1) + torch.arange(4.0) / 3 + torch.tensor(0.1)

    x = torch.randn(5)
    _, wide = reference(program, x)
    # The literals 0.1 are float64 in Python, but `torch.tensor` rounds under no mode of ours.
    expected = x.double().sum() * 0.1 + torch.arange(4, dtype=torch.float64) / 3 + 0.1
    torch.testing.assert_close(wide, expected, rtol=1e-14, atol=1e-14)


def test_autocast_is_left_out():
    a, b = torch.randn(8, 8), torch.randn(8, 8)

    def program(a, b):
        with torch.autocast("cpu", dtype=torch.bfloat16):
            return a @ b

    eager, wide = reference(program, a, b)
    assert eager.dtype is torch.bfloat16
    torch.testing.assert_close(wide, a.double() @ b.double(), rtol=1e-14, atol=1e-14)


def test_gradients():
    x = torch.randn(16)

    def program(x):
        x = x.requires_grad_()
        y = torch.softmax(x.half(), 0).float().square().sum()
        return torch.autograd.grad(y, x)[0]

    eager = program(x.clone())
    wide = run_in_float64(lambda: program(x.double()))
    exact = x.double().requires_grad_()
    (expected,) = torch.autograd.grad(torch.softmax(exact, 0).square().sum(), exact)
    torch.testing.assert_close(wide, expected, rtol=1e-14, atol=1e-14)
    assert not torch.allclose(eager.double(), expected, rtol=1e-5, atol=1e-7)


@pytest.mark.parametrize(
    "program",
    [
        lambda x: F.dropout(x, 0.5),
        lambda x: torch.native_dropout(x, 0.25, True)[0],
        lambda x: x + torch.rand(8, 4) * torch.randn_like(x),
        lambda x: x.clone().bernoulli_(0.3) + torch.bernoulli(x.sigmoid()),
        lambda x: x[torch.randperm(8)],
        lambda x: F.rrelu(x, training=True),
    ],
)
def test_the_same_draws(program):
    x = torch.randn(8, 4)
    eager, wide = reference(program, x)
    assert wide.dtype is torch.float64
    torch.testing.assert_close(eager.double(), wide, rtol=1e-6, atol=1e-6)


def test_writes_reach_inputs_through_views():
    def program(x):
        x[1:].mul_(2)
        x.view(-1)[0] = 7.0
        return x.sum()

    one, other = torch.arange(4.0), torch.arange(4.0)
    program(one)
    total = run_in_float64(lambda: program(other))
    assert torch.equal(one, other)
    assert total.dtype is torch.float64


def test_batch_norm_in_training_updates_its_statistics():
    x = torch.randn(16, 3)
    eager, wide = torch.nn.BatchNorm1d(3), torch.nn.BatchNorm1d(3)
    expected = eager(x)
    got = run_in_float64(lambda: wide(x))
    torch.testing.assert_close(got.float(), expected)
    torch.testing.assert_close(wide.running_mean, eager.running_mean)
    assert next(wide.buffers()).dtype is torch.float32


def test_higher_order_operators_are_entered():
    def program(x):
        return torch.cond(x.sum() > 0, lambda x: x.half() / 3, lambda x: x, (x,))

    x = torch.ones(2)
    with Float64():
        result = program(x)
    assert torch.equal(result, torch.ones(2, dtype=torch.float64) / 3)


def test_while_loops_are_entered():
    def program(x):
        return torch.while_loop(
            lambda i, x: i < 3, lambda i, x: (i + 1, x / 3), (x.new_zeros(()), x)
        )

    with Float64():
        _, result = program(torch.ones(2))
    assert torch.equal(result, torch.ones(2, dtype=torch.float64) / 3 / 3 / 3)


def test_whole_numbers_stay():
    x = torch.randn(3, 4)
    index = run_in_float64(lambda: x.argmax(1))
    assert torch.equal(index, x.argmax(1))


def test_default_dtype_comes_back_after_a_failure():
    def program():
        assert torch.get_default_dtype() is torch.float64
        raise KeyError

    with pytest.raises(KeyError):
        run_in_float64(program)
    assert torch.get_default_dtype() is torch.float32


def test_attention_is_not_random():
    assert is_random(torch.ops.aten.bernoulli_.float)
    assert not is_random(torch.ops.aten.add.Tensor)
    assert not is_random(torch.ops.aten._scaled_dot_product_flash_attention.default)
