"""Compiled regions do what eager does: mutation, aliasing, random state, modes, sizes, modules.

Each program runs in eager mode and compiled, from the same state; outputs, gradients, inputs,
buffers and the next random number are compared.
"""

from __future__ import annotations

import copy

import pytest
import torch
from torch import nn
from torch.nn import functional
from torch.utils.checkpoint import checkpoint

from thunder.dynamo.compiler import ThunderCompiler
from thunder.executors import OperatorExecutor

EXECUTORS = {
    "aten": ["aten"],
    "mine": [OperatorExecutor("mine", {"aten.sin": lambda x: x.sin()})],
}

PROGRAMS: dict = {}


def program(function):
    PROGRAMS[function.__name__] = function
    return function


@program
def input_mutation(wrap):
    def function(x, y):
        x.mul_(2)
        y[0] = 5
        return (x + y).sin()

    x, y = torch.ones(3), torch.zeros(3)
    return wrap(function)(x, y), x, y


@program
def mutation_of_a_view_of_an_input(wrap):
    def function(x):
        x.t()[0].add_(1)
        return x.sin()

    x = torch.ones(2, 3)
    return wrap(function)(x), x


@program
def changed_inputs_that_share_memory_are_returned(wrap):
    def function(whole, row):
        first = row.sin()
        changed = row.neg_()
        return whole.mul_(2), first, changed, row + 1

    memory = torch.arange(6.0).reshape(2, 3)
    row = memory[1]
    a, b, c, d = wrap(function)(memory.t(), row)
    a.add_(1)
    row.add_(c)
    return a, b, c, d, memory, row


@program
def a_returned_input_that_shares_memory_is_all_there_is(wrap):
    memory = torch.arange(6.0).reshape(2, 3)
    changed = wrap(lambda whole, row: row.add_(whole.sum()))(memory, memory[1])
    return changed.mul_(2), memory


@program
def outputs_that_alias(wrap):
    def function(x):
        y = x.sin()
        return x.view(-1), y, y.t(), y

    x = torch.ones(2, 3)
    a, b, c, d = wrap(function)(x)
    a.zero_()
    b.fill_(3)
    return a, b, c, d, x, b is d


@program
def dropout_draws_what_eager_draws(wrap):
    x = torch.ones(50, requires_grad=True)
    y = wrap(lambda t: functional.dropout(t.sin(), 0.3) + torch.rand_like(t))(x)
    y.sum().backward()
    return y, x.grad


@program
def sizes_change(wrap):
    f = wrap(lambda t: (t.sin() * t.shape[0]).sum(0))
    results = []
    for n in (3, 5, 1, 7):
        x = torch.linspace(0, 1, n * 2).reshape(n, 2).requires_grad_()
        y = f(x)
        y.sum().backward()
        results += [y, x.grad]
    return results


@program
def tied_weights(wrap):
    class Tied(nn.Module):
        def __init__(self):
            super().__init__()
            self.embedding = nn.Embedding(7, 4)
            self.head = nn.Linear(4, 7, bias=False)
            self.head.weight = self.embedding.weight

        def forward(self, ids):
            return self.head(self.embedding(ids).sin())

    net = Tied()
    wrap(net)(torch.tensor([1, 2, 2])).square().sum().backward()
    return net.embedding.weight.grad, net.head.weight.grad is net.embedding.weight.grad


@program
def batch_norm_buffers(wrap):
    net = nn.Sequential(nn.Conv1d(2, 3, 2), nn.BatchNorm1d(3), nn.ReLU())
    f = wrap(net)
    x = torch.randn(4, 2, 5)
    outputs = [f(x), f(x + 1)]
    net.eval()
    outputs.append(f(x))
    return outputs, dict(net.named_buffers())


@program
def optimizer_steps(wrap):
    net = nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 1))
    f = wrap(net)
    optimizer = torch.optim.AdamW(net.parameters(), lr=0.1)
    losses = []
    for step in range(4):
        loss = f(torch.full((2, 3), 0.1 * step)).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.detach())
    return losses, dict(net.named_parameters())


@program
def ambient_modes(wrap):
    f = wrap(lambda t: t.sin() * 2)
    x = torch.ones(3, requires_grad=True)
    with torch.no_grad():
        a = f(x)
    with torch.inference_mode():
        b = f(x)
        inference = b.is_inference()
    c = f(x)
    return a, a.requires_grad, b.clone(), inference, c, c.requires_grad


@program
def no_grad_inside(wrap):
    def function(x):
        with torch.no_grad():
            w = x.sin()
        return x * w, w

    x = torch.ones(3, requires_grad=True)
    y, w = wrap(function)(x)
    y.sum().backward()
    return y, w, w.requires_grad, x.grad


@program
def autocast_inside_and_outside(wrap):
    def function(x, w):
        with torch.autocast("cpu", dtype=torch.bfloat16):
            a = x @ w
            with torch.autocast("cpu", enabled=False):
                b = a.float() @ w
        return a, b, x @ w

    x, w = torch.ones(2, 2), torch.ones(2, 2, requires_grad=True)
    f = wrap(function)
    first = f(x, w)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        second = f(x, w)
    sum(t.float().sum() for t in (*first, *second)).backward()
    return first, second, w.grad


@program
def checkpointed(wrap):
    def block(x, w):
        return functional.dropout((x @ w).sin(), 0.5)

    def function(x, w):
        return checkpoint(block, x, w, use_reentrant=False) + x

    x, w = torch.ones(3, 3, requires_grad=True), torch.ones(3, 3, requires_grad=True)
    y = wrap(function)(x, w)
    y.sum().backward()
    return y, x.grad, w.grad


class Scale(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return x * 2

    @staticmethod
    def backward(ctx, gradient):
        (x,) = ctx.saved_tensors
        return gradient * x.sin()  # not the derivative, on purpose


@program
def autograd_function(wrap):
    x = torch.ones(3, requires_grad=True)
    y = wrap(lambda t: Scale.apply(t) + t)(x)
    y.sum().backward()
    return y, x.grad


@program
def compiled_twice(wrap):
    f = wrap(wrap(lambda t: t.sin()))
    return f(torch.ones(2)), f(torch.ones(2))


@program
def graph_breaks(wrap):
    def function(x):
        y = x.sin()
        if y.sum() > 1:
            y = y * 2
        torch._dynamo.graph_break()
        return y.cos()

    x = torch.ones(3, requires_grad=True)
    y = wrap(function)(x)
    y.sum().backward()
    return y, x.grad


@program
def numbers_and_none(wrap):
    def function(x, n, scale, flag, nothing):
        return (x * n + scale if flag else x).sin(), n + 1, nothing

    f = wrap(function)
    return [f(torch.ones(2), n, s, b, None) for n, s, b in ((1, 0.5, True), (2, 1.5, False))]


@program
def no_operators_at_all(wrap):
    x = torch.ones(2)
    a, b = wrap(lambda t: (t, t))(x)
    return a, a is b


def snapshot(value):
    match value:
        case torch.Tensor():
            return value.detach().clone(), value.requires_grad
        case dict():
            return {key: snapshot(item) for key, item in value.items()}
        case list() | tuple():
            return [snapshot(item) for item in value]
    return value


def outcome(function, wrap):
    torch._dynamo.reset()
    torch.manual_seed(7)
    return snapshot(function(wrap)), torch.rand(1)


@pytest.mark.parametrize("executors", EXECUTORS)
@pytest.mark.parametrize("name", PROGRAMS)
def test_as_in_eager(name, executors):
    expected = outcome(PROGRAMS[name], lambda f: f)
    made = []

    def wrap(f):
        made.append(ThunderCompiler(executors=EXECUTORS[executors], on_failure="raise"))
        return torch.compile(f, backend=made[-1])

    got = outcome(PROGRAMS[name], wrap)
    torch.testing.assert_close(got, expected)
    if name != "no_operators_at_all":
        assert any(backend.subgraph_infos for backend in made)


@pytest.mark.parametrize("executors", EXECUTORS)
def test_an_assertion_holds_in_every_call(executors):
    """It has no value, so there is none to free: the second call is by the printed program."""

    def function(x):
        torch._assert_async(x.isnan().sum() == 0, "a NaN")  # what Dynamo makes of `assert`
        return x.sin()

    backend = ThunderCompiler(executors=EXECUTORS[executors], on_failure="raise")
    compiled = torch.compile(function, backend=backend)
    for x in (torch.ones(2), torch.tensor([0.5, 2.0])):
        torch.testing.assert_close(compiled(x), x.sin())
    assert len(backend.subgraph_infos) == 1
    with pytest.raises(RuntimeError, match="a NaN"):
        compiled(torch.tensor([1.0, torch.nan]))


def test_a_copied_module_is_compiled_for_itself():
    net = nn.Linear(2, 2)
    f = torch.compile(net, backend=ThunderCompiler(executors=["aten"]))
    f(torch.ones(2))
    other = copy.deepcopy(net)
    with torch.no_grad():
        other.weight.zero_()
    g = torch.compile(other, backend=ThunderCompiler(executors=["aten"]))
    torch.testing.assert_close(g(torch.ones(2)), other.bias)
    torch.testing.assert_close(f(torch.ones(2)), net(torch.ones(2)))


def test_stats_tell_misses_hits_and_the_guard_that_failed():
    backend = ThunderCompiler(executors=["aten"])
    f = torch.compile(lambda t: t.sin(), backend=backend)
    for n in (2, 2, 2, 3, 3):
        f(torch.ones(n))
    stats = backend.compile_stats()
    assert (stats.cache_misses, stats.cache_hits) == (2, 3)
    assert stats.compiles[0].recompile_reason is None
    (again,) = stats.recompiles
    assert "size mismatch" in (again.recompile_reason or "")
    assert set(again.stages) >= {"compile", "inference"}
    assert "first compile" in str(stats)


@pytest.mark.parametrize(
    "function",
    [
        lambda x: functional.dropout(x, 0.5),
        lambda x: functional.rrelu(x, training=True),
        lambda x: functional.scaled_dot_product_attention(x, x, x, dropout_p=0.5),
        lambda x: (functional.dropout(x, 0.5), torch.rand(2), x * torch.rand(3))[2],
    ],
    ids=["dropout", "rrelu", "attention", "draws_that_nobody_reads"],
)
def test_with_fallback_random_each_number_is_drawn_once(function):
    def train(wrap):
        x = torch.linspace(-1, 1, 12).reshape(1, 4, 3).requires_grad_()
        y = wrap(function)(x)
        drawn = torch.get_rng_state()
        y.sum().backward()
        return y, x.grad, drawn, torch.get_rng_state()

    def wrap(f):
        return torch.compile(f, backend=ThunderCompiler(executors=["aten"], on_failure="raise"))

    with torch._inductor.config.patch(fallback_random=True):
        torch.testing.assert_close(outcome(train, wrap), outcome(train, lambda f: f))
