"""What each rank checks about FSDP2 (`fully_shard`)."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.checkpoint.state_dict import (
    StateDictOptions,
    get_model_state_dict,
    set_model_state_dict,
)
from torch.distributed.checkpoint.state_dict_loader import load
from torch.distributed.checkpoint.state_dict_saver import save
from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard

from tests.distributed.ddp_ranks import mean_over_ranks
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
from thunder import ThunderCompiler, thunderfx

Shard = Callable[..., Any]


def around_and_inside(here: Rank) -> None:
    """Losses and weights are those of one process that sees all rows, however it is composed."""
    for compose in (sharded_stand_ins, compiled_in_place, whole_in_place, a_stand_in_of_all):
        model, backends = compose(here)
        check_training(here, model)
        graphs = [len(backend.subgraph_infos) for backend in backends]
        assert all(graphs), (compose.__name__, graphs)
        torch._dynamo.reset()  # or the limit of recompiles of one forward would be reached
    for check in (checkpoints, mixed_precision, accumulated_gradients, late_and_alone):
        check(here)
        torch._dynamo.reset()


def sharded_stand_ins(here: Rank) -> tuple[nn.Module, list[ThunderCompiler]]:
    """Each layer is compiled, then sharded."""
    model: Any = make_net(here)
    for number, layer in enumerate(model.layers):
        model.layers[number] = fully_shard(
            thunderfx(layer, executors=here.executors), mesh=here.mesh()
        )
    backends = [layer._backend for layer in model.layers]
    return fully_shard(model, mesh=here.mesh()), backends


def compiled_in_place(here: Rank, **options: Any) -> tuple[nn.Module, list[ThunderCompiler]]:
    """Each layer is sharded, then compiled by `Module.compile`, by one compiler."""
    backend = ThunderCompiler(executors=here.executors)
    model: Any = make_net(here)
    for layer in model.layers:
        fully_shard(layer, mesh=here.mesh(), **options)
        layer.compile(backend=backend)
    return fully_shard(model, mesh=here.mesh(), **options), [backend]


def whole_in_place(here: Rank) -> tuple[nn.Module, list[ThunderCompiler]]:
    """All is sharded, then compiled by `Module.compile`."""
    model, backend = sharded(here), ThunderCompiler(executors=here.executors)
    model.compile(backend=backend)
    return model, [backend]


def a_stand_in_of_all(here: Rank) -> tuple[nn.Module, list[ThunderCompiler]]:
    """All is sharded, then given to `thunderfx`."""
    stand_in: Any = thunderfx(sharded(here), executors=here.executors)
    return stand_in, [stand_in._backend]


def sharded(here: Rank, **options: Any) -> Any:
    """Returns the net, sharded by layer and not compiled."""
    model: Any = make_net(here)
    for layer in model.layers:
        fully_shard(layer, mesh=here.mesh(), **options)
    return fully_shard(model, mesh=here.mesh(), **options)


def check_training(here: Rank, model: nn.Module) -> None:
    """Trains and compares with the plain model on the rows of all ranks."""
    inputs = batches(here)
    expected_losses, expected_weights = reference_training(make_net(here), inputs)
    losses = train(model, model.parameters(), [own_part(here, batch) for batch in inputs])
    assert_same(mean_over_ranks(losses), expected_losses)
    assert_same(full_state(model), expected_weights)


def checkpoints(here: Rank) -> None:
    """What one side saves, by torch's own ways, the other loads; so does a plain module."""
    compiled: Any = compiled_in_place(here)[0]
    plain = sharded(here)
    x = own_part(here, batches(here)[0])
    for number, (source, target) in enumerate([(compiled, plain), (plain, compiled)]):
        change(source)
        target.load_state_dict(source.state_dict())
        assert_same(full_state(target), full_state(source), rtol=0, atol=0)
        whole_file(here, source, target, number)
        change(source)
        folder = here.folder / f"distributed{number}"
        save(source.state_dict(), checkpoint_id=folder)
        state = target.state_dict()
        load(state, checkpoint_id=folder)
        target.load_state_dict(state)
        assert_same(full_state(target), full_state(source), rtol=0, atol=0)
        assert_same(target(x), source(x))
        alone = make_net(here)
        state = alone.state_dict()
        load(state, checkpoint_id=folder)
        alone.load_state_dict(state)
        assert_same(alone(x), source(x))
        for model in (source, target):
            model.reshard()  # torch leaves the root whole until a backward pass


def whole_file(here: Rank, source: nn.Module, target: nn.Module, number: int) -> None:
    """Rank 0 saves all weights as one plain file, which all ranks load."""
    change(source)
    options = StateDictOptions(full_state_dict=True, cpu_offload=True)
    state, file = get_model_state_dict(source, options=options), here.folder / f"{number}.pt"
    if here.number == 0:
        torch.save(state, file)
    dist.barrier()
    options = StateDictOptions(full_state_dict=True, broadcast_from_rank0=True)
    set_model_state_dict(target, torch.load(file, weights_only=True), options=options)
    assert_same(full_state(target), full_state(source), rtol=0, atol=0)


def change(model: nn.Module) -> None:
    """Changes all weights, so that loading has something to do."""
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(1)


def mixed_precision(here: Rank) -> None:
    """Computing in bfloat16 gives what the uncompiled model gives under the same policy."""
    policy = MixedPrecisionPolicy(param_dtype=torch.bfloat16, reduce_dtype=torch.float32)
    inputs = [own_part(here, batch) for batch in batches(here)]
    plain, compiled = sharded(here, mp_policy=policy), compiled_in_place(here, mp_policy=policy)[0]
    expected, losses = (train(model, model.parameters(), inputs) for model in (plain, compiled))
    assert losses[0].dtype is torch.bfloat16
    assert_same(losses, expected, rtol=1e-2, atol=1e-3)
    assert_same(full_state(compiled), full_state(plain), rtol=1e-2, atol=1e-3)


def accumulated_gradients(here: Rank) -> None:
    """Gradients of two half batches, the first without communication, are those of a whole."""
    net = make_net(here)
    model: Any = compiled_in_place(here, reshard_after_forward=False)[0]
    first, second = batches(here, count=2)
    model.set_requires_gradient_sync(False)
    model(own_part(here, first)).square().mean().backward()
    model.set_requires_gradient_sync(True)
    model(own_part(here, second)).square().mean().backward()
    (net(first).square().mean() + net(second).square().mean()).backward()
    for mine, expected in zip(model.parameters(), net.parameters(), strict=True):
        assert_same(mine.grad.full_tensor(), expected.grad)


def late_and_alone(here: Rank) -> None:
    """The last rank compiles more slowly, and compiles again when the others do not."""
    is_last = here.number == here.world_size - 1

    def wait(graph_module):
        time.sleep(0.5 if is_last else 0.0)

    model: Any = make_net(here)
    backends = []
    for layer in model.layers:
        fully_shard(layer, mesh=here.mesh())
        backends.append(ThunderCompiler(executors=here.executors, transforms=[wait]))
        layer.compile(backend=backends[-1], dynamic=False)
    fully_shard(model, mesh=here.mesh())
    inputs = batches(here)
    expected_losses, expected_weights = reference_training(make_net(here), inputs)
    parts = [own_part(here, batch) for batch in inputs]
    if is_last:
        # The same mean over more rows: each row is there twice.
        parts[1] = parts[1].repeat(2, 1)
    losses = train(model, model.parameters(), parts)
    assert_same(mean_over_ranks(losses), expected_losses)
    assert_same(full_state(model), expected_weights)
    graphs = [len(backend.subgraph_infos) for backend in backends]
    assert graphs == ([2, 2] if is_last else [1, 1])
