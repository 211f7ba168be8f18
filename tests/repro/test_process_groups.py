"""Graphs that communicate, and distributed tensors, as stubs of one process."""

from __future__ import annotations

import pytest
import torch
import torch.distributed as dist
from torch.distributed.tensor import DTensor, Partial, Replicate, Shard
from torch.testing._internal.distributed.fake_pg import FakeStore

from tests.repro.capture import Captured, run_together
from thunder.repro import module_source, value_source
from thunder.repro.collecting import SourceCollector
from thunder.repro.process_groups import write_distributed


@pytest.fixture
def world():
    dist.init_process_group("fake", rank=1, world_size=4, store=FakeStore())
    yield
    dist.destroy_process_group()


def test_scripts_of_several_ranks_run_in_one_process(world, tmp_path):
    group = dist.new_group([1, 3])

    def communicate(x):
        y = torch.ops._c10d_functional.all_reduce(x.sin(), "sum", group.group_name)
        z = torch.ops._c10d_functional.all_gather_into_tensor(x, 4, dist.group.WORLD.group_name)
        wait = torch.ops._c10d_functional.wait_tensor
        return wait(y) + 1, wait(z)

    mesh = dist.device_mesh.init_device_mesh("cpu", (2, 2), mesh_dim_names=("dp", "tp"))
    x = DTensor.from_local(torch.randn(2, 4), mesh, [Shard(0), Replicate()])
    w = DTensor.from_local(torch.randn(4, 4), mesh, [Replicate(), Replicate()])

    def redistribute(x, w):
        return (x @ w).redistribute(placements=[Replicate(), Replicate()]).to_local()

    captured = Captured(communicate, torch.randn(4))
    first = captured.script().write(tmp_path / "communicate.py")
    text = first.read_text()
    assert f"{group.group_name!r}: torch.distributed.new_group([1, 3])" in text
    assert "# Note: process groups are stubs" in text
    second = Captured(redistribute, x, w).script().write(tmp_path / "redistribute.py")
    assert "# Note: process groups are stubs" in second.read_text()
    for path in (first, second):  # apart: each starts a world of its own
        results = run_together([(path, "--check_consistency")])
        assert results[path.name][0] == "0", results
        assert "WRONG" not in results[path.name][1]


def test_values_of_torch_distributed(world):
    for placement in (Shard(1), Replicate(), Partial("sum")):
        source = value_source(placement)
        assert source.faithful
        namespace: dict = {}
        exec("\n".join(source.imports), namespace)
        assert eval(source.expression, namespace) == placement
    source = value_source(dist.new_group([1, 2]))
    assert source.expression == "torch.distributed.new_group([1, 2])"
    assert any("world_size=4" in line for line in source.definitions)
    assert write_distributed(3, SourceCollector()) is None


def test_graphs_that_do_not_communicate_start_no_world():
    source = module_source(Captured(lambda x: x + 1, torch.ones(2)).graph_module)
    assert "distributed" not in "\n".join([*source.imports, *source.definitions])
