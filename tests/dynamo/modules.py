"""Modules that stand-ins are made for in several test files, and how they are compared."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import fx, nn

from thunder.dynamo.thunderfx import thunderfx

X = torch.linspace(-1, 1, 6).reshape(2, 3)


def compile(module: Any, **options: Any) -> Any:
    """Returns a stand-in that runs op by op, which compiles fast."""
    return thunderfx(module, executors=["aten"], **options)


def graphs(stand_in) -> int:
    """How many graphs were compiled for the stand-in."""
    return len(stand_in._backend.subgraph_infos)


class Net(nn.Module):
    """Has one of everything: parameters, a buffer, a child, properties, methods, class state."""

    made = 0
    label: str

    def __init__(self, width=3):
        super().__init__()
        self.inner = nn.Linear(3, width)
        self.scale = nn.Parameter(torch.full((width,), 2.0))
        self.register_buffer("offset", torch.ones(width))
        self.label = "net"
        self._gain = 1.0
        self.calls = 0

    @property
    def gain(self):
        return self._gain

    @gain.setter
    def gain(self, value):
        self._gain = value

    @classmethod
    def build(cls):
        return cls()

    @staticmethod
    def twice(x):
        return 2 * x

    def generate(self, x, steps=2):
        for _ in range(steps):
            x = self(x)
        return x

    def forward(self, x):
        self.calls += 1
        return self.inner(x) * self.scale * self.gain + self.offset


MODULES: dict[str, Callable[[], Any]] = {
    "own": Net,
    "linear": lambda: nn.Linear(3, 2),
    "sequential": lambda: nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4), nn.ReLU()),
    "graph module": lambda: fx.symbolic_trace(nn.Sequential(nn.Linear(3, 2), nn.Tanh())),
}


def assert_same(stand_in, module, x=X):
    """The stand-in computes what the module does, from the same state."""
    state = {name: value.clone() for name, value in module.state_dict().items()}
    result = stand_in(x)
    module.load_state_dict(state)
    torch.testing.assert_close(result, module(x))
