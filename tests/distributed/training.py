"""What rank programs train, how, and what the results are compared with.

The reference is the plain model, trained by each process alone on what all ranks together see.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import nn
from torch.distributed.tensor import DTensor

from tests.distributed.launching import Rank

WIDTH = 8
STEPS = 3


class Layer(nn.Module):
    """A normalised residual step with a buffer."""

    def __init__(self, width: int = WIDTH) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(width)
        self.up = nn.Linear(width, 4 * width)
        self.down = nn.Linear(4 * width, width)
        self.register_buffer("scale", torch.tensor(0.5))

    def forward(self, x):
        return x + self.scale * self.down(nn.functional.gelu(self.up(self.norm(x))))


class Net(nn.Module):
    """Layers between an embedding of numbers and a head."""

    def __init__(self, layers: int = 2, width: int = WIDTH) -> None:
        super().__init__()
        self.embed = nn.Linear(3, width)
        self.layers = nn.ModuleList(Layer(width) for _ in range(layers))
        self.head = nn.Linear(width, 2)

    def forward(self, x):
        x = self.embed(x)
        for layer in self.layers:
            x = layer(x)
        return self.head(x)


def make_net(here: Rank, **options: Any) -> Net:
    """Returns the net of all ranks, the same each time."""
    torch.manual_seed(0)
    return Net(**options).to(here.device)


def batches(here: Rank, rows: int = 4, *, count: int = STEPS) -> list[torch.Tensor]:
    """Returns the batches of all ranks together: for each step, `rows` rows for each rank."""
    generator = torch.Generator().manual_seed(1)
    return [
        torch.randn(here.world_size * rows, 3, generator=generator).to(here.device)
        for _ in range(count)
    ]


def own_part(here: Rank, batch: torch.Tensor) -> torch.Tensor:
    """Returns the rows of a batch that this rank sees."""
    return batch.chunk(here.world_size)[here.number]


def train(
    model: Callable[..., torch.Tensor],
    parameters: Iterator[nn.Parameter],
    inputs: list[torch.Tensor],
) -> list[torch.Tensor]:
    """Takes a step of AdamW on each input.

    Returns:
        The losses.
    """
    optimizer = torch.optim.AdamW(parameters, lr=0.01, eps=1e-3, foreach=False)
    losses = []
    for x in inputs:
        loss = model(x).square().mean()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        losses.append(full(loss.detach()))
    return losses


def reference_training(
    net: nn.Module, inputs: list[torch.Tensor]
) -> tuple[list[torch.Tensor], dict[str, torch.Tensor]]:
    """Returns losses and final weights of a copy that is trained plainly."""
    reference = copy.deepcopy(net)
    losses = train(reference, reference.parameters(), inputs)
    return losses, dict(reference.state_dict())


def full(tensor: torch.Tensor) -> torch.Tensor:
    """Returns the whole of a distributed tensor; another as it is."""
    return tensor.full_tensor() if isinstance(tensor, DTensor) else tensor


def full_state(module: nn.Module, *, prefix: str = "") -> dict[str, torch.Tensor]:
    """Returns the whole weights and buffers, with a prefix of their names taken off."""
    return {
        name.removeprefix(prefix): full(value.detach())
        for name, value in module.state_dict().items()
    }


def assert_same(actual: Any, expected: Any, *, rtol: float = 1e-4, atol: float = 1e-5) -> None:
    """Compares tensors in lists and dictionaries, the order of the names included."""
    if isinstance(expected, dict):
        assert list(actual) == list(expected)
        actual, expected = list(actual.values()), list(expected.values())
    torch.testing.assert_close(actual, expected, rtol=rtol, atol=atol)
