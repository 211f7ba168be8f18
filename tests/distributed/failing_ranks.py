"""Ranks of which one fails."""

from __future__ import annotations

import warnings
from typing import Any

import torch
from torch import nn
from torch.distributed._functional_collectives import all_reduce

from tests.distributed.ddp_ranks import ddp, mean_over_ranks
from tests.distributed.launching import Rank
from tests.distributed.tensor_parallel_ranks import parallel
from tests.distributed.training import (
    assert_same,
    batches,
    full_state,
    make_net,
    own_part,
    reference_training,
    train,
)
from thunder import thunderfx
from thunder.errors import FallbackWarning
from thunder.executors import OperatorExecutor


def broken_gelu(*args: Any, **kwargs: Any) -> torch.Tensor:
    """Fails whenever it runs."""
    raise RuntimeError("the kernel of this rank is broken")


BROKEN = OperatorExecutor("broken", {"aten.gelu": broken_gelu})


def executors_of(here: Rank) -> list[Any]:
    """Returns a list with the broken executor on the last rank."""
    plain = here.executors if isinstance(here.executors, list) else ["inductor"]
    return [BROKEN, *plain] if here.number == here.world_size - 1 else plain


def raises_on_one_rank(here: Rank) -> None:
    """The last rank fails in the first step; the others wait for it."""
    stand_in = thunderfx(
        make_net(here),
        executors=executors_of(here),
        on_failure="raise",
        debug="save_reproducer",
    )
    model = ddp(here, stand_in)
    train(model, model.parameters(), [own_part(here, batch) for batch in batches(here)])


def goes_on_on_all_ranks(here: Rank) -> None:
    """The last rank falls back, also in a graph that communicates, and all results are right."""
    warnings.simplefilter("default", FallbackWarning)
    inputs = batches(here)
    expected_losses, expected_weights = reference_training(make_net(here), inputs)
    stand_in = thunderfx(make_net(here), executors=executors_of(here))
    model = ddp(here, stand_in)
    losses = train(model, model.parameters(), [own_part(here, batch) for batch in inputs])
    assert_same(mean_over_ranks(losses), expected_losses)
    assert_same(full_state(stand_in), expected_weights)
    divided = thunderfx(parallel(make_net(here), here.mesh()), executors=executors_of(here))
    losses = train(divided, divided.parameters(), inputs)
    assert_same(losses, expected_losses)
    assert_same(full_state(divided), expected_weights)


def fails_after_communicating(here: Rank) -> None:
    """The last rank fails between two collectives; to repeat the first would answer the second."""
    warnings.simplefilter("default", FallbackWarning)
    group = list(range(here.world_size))

    def function(x):
        y = nn.functional.gelu(all_reduce(x.sin(), "sum", group))
        return all_reduce(y.cos(), "sum", group)

    x = torch.arange(4.0, device=here.device) + here.number
    f: Any = thunderfx(function, executors=executors_of(here), fullgraph=True)
    f(x).sum().item()  # waits for the device
    print("went on")
