"""Stand-ins under DDP and FSDP2: one process, gloo, training compared with eager."""

from __future__ import annotations

import copy
from typing import Any

import pytest
import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import FSDPModule, fully_shard
from torch.nn.parallel import DistributedDataParallel

from tests.dynamo.modules import X, compile, graphs

NAMES = ["first.weight", "first.bias", "second.weight", "second.bias"]


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.second = nn.Linear(3, 4), nn.Linear(4, 2)

    def forward(self, x):
        return self.second(self.first(x).relu())


@pytest.fixture(autouse=True)
def _process_group(tmp_path):
    dist.init_process_group("gloo", f"file://{tmp_path}/store", rank=0, world_size=1)
    yield
    dist.destroy_process_group()


@pytest.fixture
def mesh():
    return init_device_mesh("cpu", (1,))


def assert_trains_as(model, reference):
    optimizers = [torch.optim.SGD(m.parameters(), lr=0.1) for m in (model, reference)]
    for _ in range(3):
        results = model(X), reference(X)
        torch.testing.assert_close(*results)
        for result, optimizer in zip(results, optimizers, strict=True):
            result.square().sum().backward()
            optimizer.step()
            optimizer.zero_grad()


@pytest.mark.parametrize("options", [{}, {"fullgraph": True}], ids=repr)
def test_ddp_of_a_stand_in(options):
    net = Net()
    reference, stand_in = copy.deepcopy(net), compile(net, **options)
    model = DistributedDataParallel(stand_in)
    assert_trains_as(model, reference)
    assert graphs(stand_in) == 1
    assert list(model.state_dict()) == [f"module.{name}" for name in NAMES]


def test_a_stand_in_of_ddp():
    net = Net()
    reference, stand_in = copy.deepcopy(net), compile(DistributedDataParallel(net))
    assert_trains_as(stand_in, reference)
    assert graphs(stand_in) == 1
    with stand_in.no_sync():
        stand_in(X)


@pytest.mark.parametrize("options", [{}, {"fullgraph": True}], ids=repr)
def test_fsdp_of_a_stand_in(mesh, options):
    net = Net()
    reference, stand_in = copy.deepcopy(net), compile(net, **options)
    assert fully_shard(stand_in, mesh=mesh) is stand_in
    assert isinstance(stand_in, FSDPModule)
    assert isinstance(stand_in, Net)
    assert_trains_as(stand_in, reference)
    assert graphs(stand_in) == 1
    assert list(stand_in.state_dict()) == NAMES
    stand_in.reshard()


@pytest.mark.parametrize("options", [{}, {"fullgraph": True}], ids=repr)
def test_a_stand_in_of_fsdp(mesh, options):
    net = Net()
    reference = copy.deepcopy(net)
    stand_in = compile(fully_shard(net, mesh=mesh), **options)
    assert_trains_as(stand_in, reference)
    assert graphs(stand_in) == 1
    stand_in.reshard()
    stand_in.set_requires_gradient_sync(True)


def test_layers_compiled_and_sharded_within_a_sharded_model(mesh):
    """In both orders: FSDP2 has to recognise a stand-in as a part that is sharded already."""
    model: Any = nn.Sequential(*(Net() for _ in range(2)), nn.Linear(2, 3))
    model[0].second = nn.Linear(4, 3)
    reference = copy.deepcopy(model)
    model[0] = fully_shard(compile(model[0], fullgraph=True), mesh=mesh)
    model[1] = compile(fully_shard(model[1], mesh=mesh), fullgraph=True)
    fully_shard(model, mesh=mesh)
    assert_trains_as(model, reference)
    assert [graphs(model[i]) for i in range(2)] == [1, 1]
    assert list(model.state_dict()) == list(reference.state_dict())


def test_children_sharded_inside_a_stand_in(mesh):
    net = Net()
    reference, stand_in = copy.deepcopy(net), compile(net)
    fully_shard(stand_in.first, mesh=mesh)
    fully_shard(stand_in, mesh=mesh)
    assert_trains_as(stand_in, reference)
    assert graphs(stand_in) >= 1
