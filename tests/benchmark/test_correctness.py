"""Correctness before speed: false alarms and true ones, whole programs."""

from __future__ import annotations

import pytest
import torch
from torch import fx, nn
from torch.nn import functional as F

from tests.benchmark.programs import draws, small, writes
from thunder.benchmark import correctness
from thunder.benchmark.correctness import expect
from thunder.benchmark.inputs import Inputs
from thunder.benchmark.program import Compute, Program
from thunder.errors import BenchmarkError

BOTH = Compute.FORWARD_BACKWARD


def judged(function, args, compiled=None, *, compute=Compute.FORWARD):
    """Judges `compiled`, a function of the bound original; the original itself by default."""
    expected = expect(function, Inputs.of(function, args), compute=compute)
    program = expected.program()
    if compiled is not None:
        program = program.replaced(compiled(program.function))
    return expected.judge(*expected.run(program))


def grad(*shape, dtype=torch.float32):
    return torch.randn(*shape, dtype=dtype).requires_grad_()


class Block(nn.Module):
    """Dropout, batch statistics, a shared parameter."""

    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(8, 8)
        self.other = nn.Linear(8, 8, bias=False)
        self.other.weight = self.linear.weight
        self.norm = nn.BatchNorm1d(8)

    def forward(self, x):
        return self.norm(F.dropout(self.other(self.linear(x)).relu(), 0.3))


@pytest.mark.parametrize("compute", list(Compute))
def test_eager_against_itself(compute):
    assert judged(small, [grad(4, 8), grad(8, 3)], compute=compute).accurate
    assert judged(Block(), [grad(16, 8)], compute=compute).accurate
    assert judged(draws, [grad(64)], compute=compute).accurate


def test_writes_of_one_run_are_not_seen_by_another():
    """The classic false alarm: the second run gets what the first one left."""
    x, total = torch.randn(8), torch.zeros(())
    verdict = judged(writes, [x, total])
    assert verdict.accurate
    assert [one.name for one in verdict.outputs] == [
        "['outputs']",
        "['outputs require grad']",
        "['inputs afterwards']['args[1]']",
    ]
    assert total == 0, "the caller's input is as it was"


def test_a_missing_write_is_wrong():
    verdict = judged(writes, [torch.randn(8), torch.zeros(())], lambda _: lambda x, total: x * 2)
    assert [one.name for one in verdict.wrong] == ["['inputs afterwards']['args[1]']"]


def test_an_additional_write_is_wrong():
    def careless(function):
        def call(x, w):
            result = function(x, w)
            w.detach().view(-1)[3] = 9
            return result

        return call

    verdict = judged(small, [grad(4, 8), grad(8, 3)], careless)
    assert [one.name for one in verdict.wrong] == ["args[1]"]
    assert "written to" in verdict.wrong[0].reason


def test_a_wrong_gradient_is_wrong():
    class WrongSin(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            ctx.save_for_backward(x)
            return x.sin()

        @staticmethod
        def backward(ctx, grad):
            return grad * ctx.saved_tensors[0]

    verdict = judged(torch.sin, [grad(8)], lambda _: WrongSin.apply, compute=BOTH)
    assert [one.name for one in verdict.wrong] == ["['gradients']['args[0]']"]


def test_a_detached_output_is_wrong():
    verdict = judged(torch.sin, [grad(8)], lambda f: lambda x: f(x).detach(), compute=BOTH)
    names = [one.name for one in verdict.wrong]
    assert names == ["['outputs require grad']", "['gradients']['args[0]']"]


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float32])
def test_fused_arithmetic_is_no_alarm(dtype):
    """Compiled code keeps float32 between operators where eager rounds."""

    def program(x, w):
        y = F.layer_norm(x @ w, [64])
        return torch.softmax(y, -1), F.gelu(y).sum(), y.var(0)

    def fused(x, w):
        y = F.layer_norm((x @ w).float(), [64])
        results = torch.softmax(y, -1), F.gelu(y).sum(), y.var(0)
        return tuple(one.to(x.dtype) for one in results)

    args = [grad(32, 64, dtype=dtype), grad(64, 64, dtype=dtype)]
    verdict = judged(program, args, lambda _: fused, compute=BOTH)
    assert verdict.accurate, verdict


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float32])
@pytest.mark.parametrize("wrong", [torch.relu, torch.tanh, lambda x: F.gelu(x).flip(0)])
def test_a_wrong_operator_deep_inside_is_an_alarm(wrong, dtype):
    def program(x, w, activation=F.gelu):
        return F.layer_norm(activation(x @ w) @ w, [64])

    args = [grad(32, 64, dtype=dtype), (torch.randn(64, 64) / 8).to(dtype).requires_grad_()]
    verdict = judged(program, args, lambda _: lambda x, w: program(x, w, wrong), compute=BOTH)
    assert {one.name.partition("]")[0] for one in verdict.wrong} == {"['outputs'", "['gradients'"}


def test_programs_that_magnify_rounding_explain_it():
    """A difference of nearly equal sums: no digit of the result is certain."""

    def program(x):
        return (x.sum() - x.flip(0).cumsum(0)[-1]) * 1e3

    verdict = judged(program, [torch.randn(4096)], lambda _: lambda x: x.sum() * 1e-5)
    assert verdict.accurate, verdict


def test_near_ties_explain_other_choices():
    x = torch.ones(500, 2)
    x[:, 1] += 1.2e-7

    def program(x):
        return (x * 3).argmax(-1)

    def other_for(rows):
        return lambda f: lambda x: torch.where(torch.arange(500) < rows, 0, f(x))

    assert judged(program, [x], other_for(100)).accurate
    clear = torch.randn(500, 2)
    assert not judged(program, [clear], other_for(100)).accurate


def test_other_random_numbers_are_no_alarm_but_other_operators_are():
    args = [torch.randn(1000)]
    other = judged(draws, args, lambda f: lambda x: (torch.manual_seed(5), f(x))[1])
    assert other.accurate
    assert "random" in other.note
    wrong = judged(draws, args, lambda f: lambda x: f(x) * 20)
    assert not wrong.accurate


def test_losses_of_other_random_numbers_are_no_alarm():
    """One number, of which a single other draw tells little."""

    def loss(x):
        return F.dropout(x, 0.5).square().mean()

    def alarms(make_wrong):
        x = torch.randn(64)
        found = 0
        for seed in range(40):

            def compiled(f, seed=seed):
                return lambda x: make_wrong((torch.manual_seed(seed), f(x))[1])

            found += not judged(loss, [x], compiled).accurate
        return found

    assert alarms(lambda value: value) == 0
    assert alarms(lambda value: value * 10) == 40


def test_random_numbers_are_judged_exactly_when_they_are_the_same():
    verdict = judged(draws, [torch.randn(1000)])
    distance = verdict.outputs[0].compiled
    assert distance is not None
    assert distance.rms < 1e-6


def test_operators_without_float64():
    @torch.library.custom_op("thunder_test_correctness::single", mutates_args=())
    def single(x: torch.Tensor) -> torch.Tensor:
        if x.dtype is not torch.float32:
            raise RuntimeError("float32 only\nreally")
        return x + 1

    verdict = judged(single, [torch.randn(8)])
    assert verdict.accurate
    assert verdict.note == "no float64 result: RuntimeError: float32 only"
    assert not judged(single, [torch.randn(8)], lambda f: lambda x: f(x) + 1).accurate


def test_undeclared_writes_are_refused():
    @torch.library.custom_op("thunder_test_correctness::sly", mutates_args=())
    def sly(x: torch.Tensor) -> torch.Tensor:
        x.numpy()[0] = 7
        return x + 1

    with pytest.raises(BenchmarkError, match=r"writes to args\[0\].*mutates_args"):
        judged(sly, [torch.zeros(8)])


def test_graph_modules_with_parameters():
    graph_module = fx.symbolic_trace(Block().eval())
    verdict = judged(graph_module, [grad(16, 8)], compute=BOTH)
    assert verdict.accurate
    assert "['gradients']['state.linear.weight']" in [one.name for one in verdict.outputs]


def test_the_module_is_left_alone():
    model, x = Block(), grad(16, 8)
    before = {name: value.clone() for name, value in model.state_dict().items()}
    judged(model, [x], compute=BOTH)
    for name, value in model.state_dict().items():
        assert torch.equal(value, before[name]), name
    assert all(parameter.grad is None for parameter in model.parameters())
    assert x.grad is None


def test_contestants_share_parameters_and_own_what_is_written():
    model = Block()
    expected = expect(model, Inputs.of(model, [torch.randn(16, 8)]), compute=Compute.FORWARD)
    assert sorted(expected.written) == [
        "state.norm.num_batches_tracked",
        "state.norm.running_mean",
        "state.norm.running_var",
    ]
    own = expected.program().function
    assert isinstance(own, Block)
    assert own is not model
    assert own.linear.weight.data_ptr() == model.linear.weight.data_ptr()
    assert own.other.weight is own.linear.weight
    assert own.get_buffer("norm.running_mean") is not model.get_buffer("norm.running_mean")
    own.get_buffer("norm.running_mean").fill_(3)
    assert not model.get_buffer("norm.running_mean").any()


def test_repeated_steps_with_writes_that_autograd_records():
    """Such inputs would grow a history with each call."""

    def program(x):
        x.mul_(2)
        return x.sin()

    inputs = Inputs(args=(torch.randn(4, requires_grad=True) * 1,))
    for compute in Compute:
        expected = expect(program, inputs, compute=compute)
        workload = expected.program().workload(expected.written)
        for _ in range(3):
            workload.run()


def test_backward_needs_a_gradient():
    program = Program(
        function=torch.sin, inputs=Inputs(args=(torch.ones(2),)), compute=Compute.BACKWARD
    )
    with pytest.raises(BenchmarkError, match=r"0 inputs and 0 outputs require grad"):
        program.workload().run()


def test_large_inputs_on_a_device_are_not_held_twice(monkeypatch):
    monkeypatch.setattr(correctness, "_is_large", lambda inputs: True)
    args = [torch.randn(4, 8).bfloat16(), torch.randn(8, 3).bfloat16()]
    forward = judged(small, args)
    assert forward.accurate
    assert forward.note == ""
    distance = forward.outputs[0].eager
    assert distance is not None, "there is a float64 result all the same"
    assert distance.rms > 0
    assert "held twice" in judged(small, args, compute=BOTH).note
