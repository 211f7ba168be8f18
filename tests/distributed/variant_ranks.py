"""What each rank checks about the rarer settings of DDP, FSDP2 and tensor parallelism."""

from __future__ import annotations

import copy
from typing import Any

import torch
from torch import nn
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor import Shard
from torch.distributed.tensor.parallel import (
    ColwiseParallel,
    loss_parallel,
    parallelize_module,
)
from torch.utils.checkpoint import checkpoint

from tests.distributed.ddp_ranks import ddp
from tests.distributed.launching import Rank
from tests.distributed.tensor_parallel_ranks import parallel
from tests.distributed.training import (
    assert_same,
    batches,
    full,
    full_state,
    make_net,
    own_part,
    reference_training,
    train,
)
from thunder import thunderfx


def variants(here: Rank) -> None:
    """Runs all checks of this module."""
    checks = (
        unused_parameters_and_buffers,
        static_graph,
        autocast,
        recomputed_activations,
        parallel_loss,
        dynamic_rows_and_inference,
    )
    for check in checks:
        check(here)
        torch._dynamo.reset()


class Normalized(nn.Module):
    """Updates buffers, and leaves a part of itself unused."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.norm = nn.Linear(3, 8), nn.BatchNorm1d(8)
        self.last, self.unused = nn.Linear(8, 2), nn.Linear(2, 2)

    def forward(self, x):
        return self.last(self.norm(self.first(x)).relu())


class Recomputed(nn.Module):
    """Recomputes what a layer needs for its gradients."""

    def __init__(self, layer: nn.Module) -> None:
        super().__init__()
        self.layer = layer

    def forward(self, x):
        return checkpoint(self.layer, x, use_reentrant=False)


def unused_parameters_and_buffers(here: Rank) -> None:
    """DDP sends the buffers of rank 0, and looks for parameters without a gradient."""
    torch.manual_seed(0)
    net = Normalized().to(here.device)
    plain = ddp(here, copy.deepcopy(net), find_unused_parameters=True)
    model = thunderfx(ddp(here, net, find_unused_parameters=True), executors=here.executors)
    inputs = [own_part(here, batch) for batch in batches(here)]
    losses, expected = (train(m, m.parameters(), inputs) for m in (model, plain))
    assert_same(losses, expected)
    assert_same(full_state(model), full_state(plain))


def static_graph(here: Rank) -> None:
    """DDP learns the order of the gradients in the first step; they live in its buckets."""
    net, inputs = make_net(here), batches(here)
    _, expected = reference_training(net, inputs)
    stand_in = thunderfx(net, executors=here.executors)
    model = ddp(here, stand_in, static_graph=True, gradient_as_bucket_view=True)
    train(model, model.parameters(), [own_part(here, batch) for batch in inputs])
    assert_same(full_state(stand_in), expected)


def autocast(here: Rank) -> None:
    """The steps run in bfloat16 where autocast says so."""
    inputs = [own_part(here, batch) for batch in batches(here)]

    def losses(model: Any) -> list[torch.Tensor]:
        def call(x: torch.Tensor) -> torch.Tensor:
            with torch.autocast(here.device.type, dtype=torch.bfloat16):
                return model(x)

        return train(call, model.parameters(), inputs)

    model = thunderfx(ddp(here, make_net(here)), executors=here.executors)
    assert_same(losses(model), losses(ddp(here, make_net(here))), rtol=2e-2, atol=5e-3)


def recomputed_activations(here: Rank) -> None:
    """Sharded layers recompute their activations inside what is compiled."""
    model: Any = make_net(here)
    inputs = batches(here)
    _, expected = reference_training(model, inputs)
    for number, layer in enumerate(model.layers):
        stand_in = thunderfx(Recomputed(layer), executors=here.executors)
        model.layers[number] = fully_shard(stand_in, mesh=here.mesh())
    fully_shard(model, mesh=here.mesh())
    train(model, model.parameters(), [own_part(here, batch) for batch in inputs])
    found = {name.replace(".layer.", "."): value for name, value in full_state(model).items()}
    assert_same(found, expected)


def parallel_loss(here: Rank) -> None:
    """A loss over classes that are divided among the ranks."""
    torch.manual_seed(0)
    plain = nn.Sequential(nn.Linear(3, 8), nn.ReLU(), nn.Linear(8, 4 * here.world_size))
    plain.to(here.device)
    model: Any = copy.deepcopy(plain)
    divided = ColwiseParallel(output_layouts=Shard(-1), use_local_output=False)
    parallelize_module(model, here.mesh(), {"2": divided})
    (x,) = batches(here, count=1)
    classes = torch.arange(len(x), device=here.device) % 4

    def loss_of(model: nn.Module) -> torch.Tensor:
        return nn.functional.cross_entropy(model(x), classes)

    with loss_parallel():
        loss = thunderfx(lambda: loss_of(model), executors=here.executors)()
        loss.backward()
    expected = loss_of(plain)
    expected.backward()
    assert_same(full(loss.detach()), expected.detach())
    for mine, wanted in zip(model.parameters(), plain.parameters(), strict=True):
        assert_same(full(mine.grad), wanted.grad)


def dynamic_rows_and_inference(here: Rank) -> None:
    """Divided layers with other numbers of rows, which become symbolic, and without gradients."""
    plain = make_net(here)
    model = thunderfx(parallel(make_net(here), here.mesh()), executors=here.executors)
    generator = torch.Generator().manual_seed(3)
    for rows in (2, 3, 5, 7):
        x = torch.randn(rows, 3, generator=generator).to(here.device)
        assert_same(model(x), plain(x))
    assert len(model._backend.subgraph_infos) == 2
    for mode in (torch.no_grad, torch.inference_mode):
        with mode():
            assert_same(model(x), plain(x))
