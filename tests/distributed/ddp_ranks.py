"""What each rank checks about DistributedDataParallel."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Sequence
from typing import Any

import torch
import torch.distributed as dist
from torch import fx, nn
from torch.distributed.checkpoint.state_dict_loader import load
from torch.distributed.checkpoint.state_dict_saver import save
from torch.nn.parallel import DistributedDataParallel

import thunder
from tests.distributed.launching import Rank
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
from thunder.executors import AbstractFusionExecutor, register_executor
from thunder.executors.base import RegionContext

WIDE = 256
"""With so many features, the weights of a layer take 2 MiB: more than a bucket of 1 MiB."""


def around_and_inside(here: Rank) -> None:
    """Losses and weights are those of one process that sees all rows."""
    inside, outside = make_net(here), make_net(here)
    stand_in = thunderfx(inside, executors=here.executors)
    check_training(here, ddp(here, stand_in), stand_in)
    stand_in = thunderfx(ddp(here, outside), executors=here.executors)
    check_training(here, stand_in, stand_in)
    several_buckets(here)
    checkpoints(here, stand_in)
    accumulated_gradients(here)
    late_and_alone(here)


def several_buckets(here: Rank) -> None:
    """torch cuts the graph where a bucket ends, and thunder gets the pieces."""
    stand_in: Any = thunderfx(make_net(here, width=WIDE), executors=here.executors)
    check_training(here, ddp(here, stand_in, bucket_cap_mb=1), stand_in, width=WIDE)
    assert len(stand_in._backend.subgraph_infos) > 1


def ddp(here: Rank, module: nn.Module, **options: Any) -> DistributedDataParallel:
    """Returns the module under DDP on this rank's device."""
    return DistributedDataParallel(
        module, device_ids=[here.device] if here.device.type == "cuda" else None, **options
    )


def check_training(here: Rank, model: nn.Module, stand_in: Any, **options: Any) -> None:
    """Trains and compares with the plain model on the rows of all ranks."""
    inputs = batches(here)
    expected_losses, expected_weights = reference_training(make_net(here, **options), inputs)
    losses = train(model, model.parameters(), [own_part(here, batch) for batch in inputs])
    assert_same(mean_over_ranks(losses), expected_losses)
    assert_same(full_state(model, prefix="module."), expected_weights)
    assert stand_in._backend.subgraph_infos


def mean_over_ranks(values: list[torch.Tensor]) -> list[torch.Tensor]:
    """Returns the mean of each value over all ranks."""
    stacked = torch.stack(values)
    dist.all_reduce(stacked)
    return list(stacked / dist.get_world_size())


def checkpoints(here: Rank, compiled: Any) -> None:
    """What one side saves, plainly or distributed, the other loads."""
    plain = ddp(here, make_net(here))
    with torch.no_grad():
        for parameter in plain.parameters():
            parameter.mul_(2)
    for number, (source, target) in enumerate([(compiled, plain), (plain, compiled)]):
        with torch.no_grad():
            for parameter in source.parameters():
                parameter.add_(1)
        saved, folder = here.folder / f"plain{number}.pt", here.folder / f"distributed{number}"
        if here.number == 0:
            torch.save(source.state_dict(), saved)
        dist.barrier()
        target.load_state_dict(torch.load(saved, weights_only=True, map_location=here.device))
        assert_same(full_state(target), full_state(source), rtol=0, atol=0)
        with torch.no_grad():
            for parameter in source.parameters():
                parameter.add_(1)
        save(source.state_dict(), checkpoint_id=folder)
        state = target.state_dict()
        load(state, checkpoint_id=folder)
        target.load_state_dict(state)
        assert_same(full_state(target), full_state(source), rtol=0, atol=0)
        x = own_part(here, batches(here)[0])
        assert_same(target(x), source(x))


def accumulated_gradients(here: Rank) -> None:
    """Gradients of two half batches, the first without communication, are those of a whole."""
    net = make_net(here)
    model = thunderfx(ddp(here, make_net(here)), executors=here.executors)
    first, second = batches(here, count=2)
    with model.no_sync():
        model(own_part(here, first)).square().mean().backward()
    model(own_part(here, second)).square().mean().backward()
    (net(first).square().mean() + net(second).square().mean()).backward()
    for mine, expected in zip(model.parameters(), net.parameters(), strict=True):
        assert_same(mine.grad, expected.grad)


def late_and_alone(here: Rank) -> None:
    """The last rank compiles more slowly, and compiles again when the others do not."""
    is_last = here.number == here.world_size - 1

    def wait(graph_module):
        time.sleep(1.0 if is_last else 0.0)

    stand_in: Any = thunderfx(
        make_net(here), executors=here.executors, transforms=[wait], dynamic=False
    )
    model = ddp(here, stand_in)
    inputs = batches(here)
    expected_losses, expected_weights = reference_training(make_net(here), inputs)
    parts = [own_part(here, batch) for batch in inputs]
    if is_last:
        # The same mean over more rows: each row is there twice.
        parts[1] = parts[1].repeat(2, 1)
    losses = train(model, model.parameters(), parts)
    assert_same(mean_over_ranks(losses), expected_losses)
    assert_same(full_state(stand_in), expected_weights)
    assert len(stand_in._backend.subgraph_infos) == (2 if is_last else 1)


class Uneven(AbstractFusionExecutor):
    """Runs regions as they are, on the first rank slowly; that alone would never choose it."""

    def __init__(self, rank: int) -> None:
        self._seconds = 0.02 if rank == 0 else 0.0

    @property
    def name(self) -> str:
        return "uneven"

    def check(self, node: fx.Node) -> None:
        return None

    def compile(
        self, graph_module: fx.GraphModule, example_inputs: Sequence[Any], context: RegionContext
    ) -> Callable[..., Sequence[Any]]:
        def run(*inputs: Any) -> Sequence[Any]:
            time.sleep(self._seconds)
            return graph_module(*inputs)

        return run


def one_verdict(here: Rank) -> None:
    """All ranks run a graph by the entrant that the first to decide has chosen."""
    register_executor(Uneven(here.number), enter_contest=True)
    os.environ["THUNDER_CACHE_DIR"] = str(here.folder / f"verdicts{here.number}")
    stand_in: Any = thunderfx(make_net(here, width=WIDE), executors="auto", contest="full")
    check_training(here, ddp(here, stand_in), stand_in, width=WIDE)
    winners = [
        (graph, verdict.winner)
        for record in thunder.compile_stats(stand_in).compiles
        for graph, verdict in record.verdicts.items()
    ]
    assert len(winners) > 1
    of_all: list[Any] = [None] * here.world_size
    dist.all_gather_object(of_all, winners)
    assert all(found == winners for found in of_all), of_all
