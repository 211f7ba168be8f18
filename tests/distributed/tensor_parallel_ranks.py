"""What each rank checks about tensor parallelism with DTensor."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import nn
from torch.distributed.checkpoint.state_dict_loader import load
from torch.distributed.checkpoint.state_dict_saver import save
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor import Replicate, Shard, distribute_tensor
from torch.distributed.tensor.parallel import (
    ColwiseParallel,
    PrepareModuleInput,
    RowwiseParallel,
    SequenceParallel,
    parallelize_module,
)

from tests.distributed.ddp_ranks import mean_over_ranks
from tests.distributed.launching import Rank
from tests.distributed.training import (
    assert_same,
    batches,
    full,
    full_state,
    make_net,
    reference_training,
    train,
)
from thunder import ThunderCompiler, thunderfx


def around_and_inside(here: Rank) -> None:
    """Losses and weights are those of one process, however it is composed."""
    for compose in (a_stand_in, compiled_in_place, compiled_layers, a_parallel_stand_in):
        model, backends = compose(here)
        check_training(here, model)
        graphs = [len(backend.subgraph_infos) for backend in backends]
        assert all(graphs), (compose.__name__, graphs)
        torch._dynamo.reset()  # or the limit of recompiles of one forward would be reached
    for check in (sequence_parallel, checkpoints, distributed_tensors_in_a_function):
        check(here)


def parallel(model: Any, mesh: DeviceMesh) -> Any:
    """Divides the wide part of each layer."""
    for layer in model.layers:
        parallelize_module(layer, mesh, {"up": ColwiseParallel(), "down": RowwiseParallel()})
    return model


def a_stand_in(here: Rank) -> tuple[nn.Module, list[ThunderCompiler]]:
    """Divided, then given to `thunderfx`."""
    stand_in: Any = thunderfx(parallel(make_net(here), here.mesh()), executors=here.executors)
    return stand_in, [stand_in._backend]


def compiled_in_place(here: Rank) -> tuple[nn.Module, list[ThunderCompiler]]:
    """Divided, then compiled by `Module.compile`."""
    model, backend = (
        parallel(make_net(here), here.mesh()),
        ThunderCompiler(executors=here.executors),
    )
    model.compile(backend=backend)
    return model, [backend]


def compiled_layers(here: Rank) -> tuple[nn.Module, list[ThunderCompiler]]:
    """Divided, then each layer compiled."""
    model: Any = parallel(make_net(here), here.mesh())
    for number, layer in enumerate(model.layers):
        model.layers[number] = thunderfx(layer, executors=here.executors)
    return model, [layer._backend for layer in model.layers]


def a_parallel_stand_in(here: Rank) -> tuple[nn.Module, list[ThunderCompiler]]:
    """Given to `thunderfx`, then divided."""
    stand_in: Any = thunderfx(make_net(here), executors=here.executors)
    return parallel(stand_in, here.mesh()), [stand_in._backend]


def check_training(here: Rank, model: nn.Module) -> None:
    """Trains on what all ranks see alike and compares with the plain model."""
    inputs = batches(here)
    expected_losses, expected_weights = reference_training(make_net(here), inputs)
    losses = train(model, model.parameters(), inputs)
    assert_same(losses, expected_losses)
    assert_same(full_state(model), expected_weights)


def sequence_parallel(here: Rank) -> None:
    """Activations between the layers are divided by rows."""
    model: Any = make_net(here)
    mesh = here.mesh()
    plan = {
        "norm": SequenceParallel(sequence_dim=0),
        "up": PrepareModuleInput(input_layouts=(Shard(0),), desired_input_layouts=(Replicate(),)),
        "down": RowwiseParallel(output_layouts=Shard(0), use_local_output=False),
    }
    for layer in model.layers:
        parallelize_module(layer, mesh, plan)
        parallelize_module(layer, mesh, {"up": ColwiseParallel()})
        layer.scale = nn.Buffer(distribute_tensor(layer.scale, mesh, [Replicate()]))
    parallelize_module(
        model,
        mesh,
        {
            "embed": RowwiseParallel(
                input_layouts=Replicate(), output_layouts=Shard(0), use_local_output=False
            ),
            "head": ColwiseParallel(input_layouts=Shard(0), output_layouts=Replicate()),
        },
    )
    stand_in: Any = thunderfx(model, executors=here.executors)
    check_training(here, stand_in)
    assert stand_in._backend.subgraph_infos


def checkpoints(here: Rank) -> None:
    """What one side saves, by torch's own ways, the other loads; so does a plain module."""
    compiled, plain = a_stand_in(here)[0], parallel(make_net(here), here.mesh())
    (x,) = batches(here, count=1)
    for number, (source, target) in enumerate([(compiled, plain), (plain, compiled)]):
        change(source)
        target.load_state_dict(source.state_dict())
        assert_same(target(x), source(x))
        change(source)
        folder = here.folder / f"distributed{number}"
        save(source.state_dict(), checkpoint_id=folder)
        for loads in (target, make_net(here)):
            state = loads.state_dict()
            load(state, checkpoint_id=folder)
            loads.load_state_dict(state)
            assert_same(full_state(loads), full_state(source), rtol=0, atol=0)
            assert_same(loads(x), source(x))


def change(model: nn.Module) -> None:
    """Changes all weights, so that loading has something to do."""
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(1)


def distributed_tensors_in_a_function(here: Rank) -> None:
    """Distributed tensors are arguments, results and intermediate values, with gradients."""
    mesh = here.mesh()
    generator = torch.Generator().manual_seed(2)
    x, w = (torch.randn(4, 4, generator=generator).to(here.device) for _ in range(2))

    def function(x, w):
        y = (x @ w).redistribute(placements=[Replicate()])
        return y.softmax(-1).redistribute(placements=[Shard(0)]) * 2

    results: list[Any] = []
    for f in (function, thunderfx(function, executors=here.executors)):
        inputs = [
            distribute_tensor(tensor, mesh, [placement]).requires_grad_()
            for tensor, placement in ((x, Shard(1)), (w, Shard(0)))
        ]
        y = f(*inputs)
        gradients = torch.autograd.grad(y.square().sum(), inputs)
        results.append([full(value) for value in (y, *gradients)])
        assert y.placements == (Shard(0),)
    assert_same(*results)


def two_dimensions(here: Rank) -> None:
    """FSDP2 over one dimension of the mesh, tensor parallelism over the other."""
    mesh = here.mesh(here.world_size // 2, 2, names=("data", "model"))
    inputs = batches(here)
    expected_losses, expected_weights = reference_training(make_net(here), inputs)
    parts = [b.chunk(mesh["data"].size())[mesh["data"].get_local_rank()] for b in inputs]
    composers: tuple[Callable[[Any], Any], ...] = (
        lambda layer: thunderfx(layer, executors=here.executors),
        lambda layer: layer,
    )
    for compose in composers:
        model: Any = parallel(make_net(here), mesh["model"])
        for number, layer in enumerate(model.layers):
            model.layers[number] = fully_shard(compose(layer), mesh=mesh["data"])
        fully_shard(model, mesh=mesh["data"])
        losses = train(model, model.parameters(), parts)
        assert_same(mean_over_ranks(losses), expected_losses)
        assert_same(full_state(model), expected_weights)
