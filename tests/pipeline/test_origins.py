"""Traces say what the numbered inputs and the gradients are in the user's program."""

from __future__ import annotations

import torch
from torch import nn

from thunder.dynamo import thunderfx
from thunder.dynamo.inspection import last_backward_traces, last_traces
from thunder.trace import TraceCtx


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = nn.ModuleList([nn.Linear(4, 4), nn.BatchNorm1d(4)])
        self.register_buffer("scale", torch.ones(4))

    def forward(self, x, extra):
        for layer in self.layers:
            x = layer(x)
        return x * self.scale + extra["bias"]


def parameter_comments(trace: TraceCtx) -> list[str]:
    """What stands beside the parameters, after their types."""
    signature, _, _ = trace.python().partition("):\n")
    return [line.rpartition('", ')[2] for line in signature.splitlines() if line.startswith("    ")]


def test_inputs_are_named_as_in_the_users_program():
    compiled = thunderfx(Net(), executors=["aten"])
    x = torch.randn(3, 4)
    compiled(x, {"bias": torch.randn(4)}).sum().backward()
    (forward,), (backward,) = last_traces(compiled), last_backward_traces(compiled)
    assert parameter_comments(forward) == [
        "self.layers.0.weight",
        "self.layers.0.bias",
        "x",
        "self.layers.1.num_batches_tracked",
        "self.layers.1.running_mean",
        "self.layers.1.running_var",
        "self.layers.1.weight",
        "self.layers.1.bias",
        "self.scale",
        "extra['bias']",
    ]
    assert 'tangents_1,  # "cpu f32[3, 4]", gradient of output 0' in backward.python()
    gradients = [line for line in backward.python().splitlines() if ": gradient of" in line]
    assert [line.partition("gradient of ")[2] for line in gradients] == [
        "self.layers.0.weight",
        "self.layers.0.bias",
        "self.layers.1.weight",
        "self.layers.1.bias",
    ]
    returned = backward.python().splitlines()[-1]
    assert gradients[0].split(":")[0].removeprefix("    # ") in returned


def test_symbolic_sizes_and_results_of_other_parts_are_named():
    def function(x):
        y = torch.sin(x)
        return torch.sinc(y) + y.shape[0]

    compiled = thunderfx(function, executors=["aten"], dynamic=True, exclude_ops=[torch.sinc])
    compiled(torch.randn(3, 4))
    first, last = last_traces(compiled)
    assert parameter_comments(first)[-1] == "x"
    assert "x.size()[0]" in parameter_comments(first)
    assert "sinc" in parameter_comments(last)
