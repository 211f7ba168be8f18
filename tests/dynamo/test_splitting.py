"""Operators that are left to Inductor: results stay as in eager, and reasons are said.

Each program has an excluded operator somewhere awkward. Gradients, modes, in-place changes, random
numbers and sizes must come out as without the cut.
"""

from __future__ import annotations

import pytest
import torch
from torch.nn import functional
from torch.utils.checkpoint import checkpoint

import thunder
from thunder.dynamo import get_subgraph_info
from thunder.errors import OptionError

PROGRAMS: dict = {}


def program(function):
    PROGRAMS[function.__name__] = function
    return function


@program
def in_the_middle(x):
    return torch.sinc(x.cos()).exp() * x


@program
def under_no_grad(x):
    with torch.no_grad():
        weight = torch.sinc(x).abs()
    return x * weight, weight


@program
def under_autocast(x):
    with torch.autocast("cpu", dtype=torch.bfloat16):
        a = x @ x.t()
        b = torch.sinc(a.float()) @ x
        with torch.autocast("cpu", enabled=False):
            c = b.float() @ x.t()
        return a, b, c, c @ x


@program
def in_a_checkpointed_region(x):
    def block(t):
        return torch.sinc(t @ t.t()).cos()

    return checkpoint(block, x, use_reentrant=False).sum() * x


@program
def between_in_place_changes(x):
    y = x * 2
    view = y[0]
    view.add_(1)
    z = torch.sinc(y + 0)
    y.mul_(3)
    return y, z, view


@program
def with_random_numbers(x):
    a = functional.dropout(x, 0.5)
    b = torch.sinc(a)
    return functional.dropout(b, 0.5) + torch.rand_like(x)


@program
def with_sizes(x):
    return torch.sinc(x.reshape(-1)) * x.shape[0] + x.shape[1]


@program
def whose_result_is_unused(x):
    torch.sinc(x)
    return x.cos()


@program
def as_a_method(x):
    return x.sinc() + x.cos()


def run(f, x):
    torch.manual_seed(3)
    x = x.clone().requires_grad_()
    out = f(x)
    leaves = [t for t in (out if isinstance(out, tuple) else (out,)) if t.requires_grad]
    sum(t.float().sum() for t in leaves).backward()
    flags = [t.requires_grad for t in (out if isinstance(out, tuple) else (out,))]
    return out, flags, x.grad, torch.rand(1), torch.is_grad_enabled()


@pytest.mark.parametrize("name", PROGRAMS)
def test_as_in_eager(name):
    function = PROGRAMS[name]
    f = thunder.thunderfx(
        function,
        executors=["aten"],
        exclude_ops=[torch.sinc],
        options={"fallback_random": True},
        on_failure="raise",
    )
    for shape in ((3, 3), (4, 4)):
        x = torch.linspace(-1, 1, shape[0] * shape[1]).reshape(shape)
        # Within an Inductor region bfloat16 is not rounded between operators.
        tolerance = 0.1 if name == "under_autocast" else 1e-5
        torch.testing.assert_close(run(f, x), run(function, x), rtol=tolerance, atol=tolerance)
    reasons = [reason for info in get_subgraph_info(f) for reason in info.split_reasons]
    if name != "whose_result_is_unused":
        assert reasons
    for reason in reasons:
        assert "test_splitting.py" in str(reason)
        assert "0x" not in str(reason)


def test_one_excluded_operator_gives_three_partitions():
    f = thunder.thunderfx(in_the_middle, executors=["aten"], exclude_ops=["sinc"])
    f(torch.ones(2, 2))
    (info,) = get_subgraph_info(f)
    assert list(info.submodule_to_compiled_functions) == ["thunder_0", "inductor_1", "thunder_2"]
    (reason,) = info.split_reasons
    assert reason.op == "sinc"
    assert "sinc is in exclude_ops" in str(info)


def test_nothing_is_split_without_a_reason():
    f = thunder.thunderfx(in_the_middle, executors=["aten"])
    f(torch.ones(2, 2))
    (info,) = get_subgraph_info(f)
    assert info.split_reasons == ()
    assert list(info.submodule_to_compiled_functions) == ["thunder_0"]


def test_an_unknown_operator_is_refused():
    with pytest.raises((OptionError, Exception), match="sink"):
        thunder.thunderfx(in_the_middle, exclude_ops=["sink"], on_failure="raise")(torch.ones(2, 2))
