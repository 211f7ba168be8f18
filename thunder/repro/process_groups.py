"""Process groups and device meshes of a program, as stubs of one process.

With torch's fake backend collectives return without talking to anybody, so that a region of a
run with several ranks runs alone: shapes are right, values that would come from others are not.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator
from typing import Any

import torch
import torch.distributed as dist
from torch import fx

from thunder.repro.collecting import SourceCollector
from thunder.trace.literals import class_name

_PLACEMENTS = "torch.distributed.tensor.placement_types"
"""Looked up among the loaded modules: importing it costs half a second."""

_NAMESPACES = ("_c10d_functional", "_c10d_functional_autograd", "c10d_functional", "_dtensor")


def define_process_groups(graphs: Iterable[fx.Graph], collector: SourceCollector) -> None:
    """Defines stubs of the process groups that graphs use.

    Args:
        graphs: The graphs.
        collector: Gets the definitions.
    """
    names = dict.fromkeys(name for graph in graphs for name in _group_names(graph))
    if not names:
        return
    _define_world(collector)
    lines = [
        "groups = {",
        *(f"    {name!r}: torch.distributed.new_group({_ranks(name)})," for name in names),
        "}",
        "torch._C._distributed_c10d._unregister_all_process_groups()",
        "for group_name, group in groups.items():",
        "    torch._C._distributed_c10d._register_process_group(group_name, group)",
    ]
    collector.define("process groups", "\n".join(lines))


def write_distributed(value: Any, collector: SourceCollector) -> str | None:
    """Writes a device mesh, a placement or a process group.

    Args:
        value: Anything.
        collector: Gets imports and the stub of the world.

    Returns:
        An expression, or None for other values.
    """
    meshes, placements = map(sys.modules.get, ("torch.distributed.device_mesh", _PLACEMENTS))
    if meshes and isinstance(value, meshes.DeviceMesh):
        _define_world(collector)
        ranks, names = value.mesh.tolist(), value.mesh_dim_names
        arguments = f"{value.device_type!r}, {ranks}, mesh_dim_names={names!r}"
    elif placements and isinstance(value, placements.Placement):
        is_shard, is_partial = value.is_shard(), value.is_partial()
        argument = value.dim if is_shard else value.reduce_op if is_partial else None
        arguments = "" if argument is None else repr(argument)
    elif dist.is_available() and isinstance(value, dist.ProcessGroup):
        _define_world(collector)
        return f"torch.distributed.new_group({dist.get_process_group_ranks(value)})"
    else:
        return None
    owner = class_name(type(value), collector.names)
    return None if owner is None else f"{owner}({arguments})"


def _define_world(collector: SourceCollector) -> None:
    size, rank = (dist.get_world_size(), dist.get_rank()) if dist.is_initialized() else (1, 0)
    collector.names.modules |= {
        "torch.distributed",
        "torch.testing._internal.distributed.fake_pg",
    }
    collector.note(
        "process groups are stubs of one process: collectives have the right shapes, and the "
        "values of other ranks are missing"
    )
    collector.define(
        "default process group",
        f'torch.distributed.init_process_group("fake", rank={rank}, world_size={size}, '
        "store=torch.testing._internal.distributed.fake_pg.FakeStore())",
    )


def _group_names(graph: fx.Graph) -> Iterator[str]:
    for node in graph.nodes:
        target: Any = node.target
        if not isinstance(target, torch._ops.OpOverload | torch._ops.OpOverloadPacket):
            continue
        is_packet = isinstance(target, torch._ops.OpOverloadPacket)
        overload = getattr(target, target.overloads()[0]) if is_packet else target
        if overload.namespace not in _NAMESPACES:
            continue
        for position, argument in enumerate(overload._schema.arguments):
            if argument.name == "group_name":
                given = node.args[position] if position < len(node.args) else None
                name = node.kwargs.get("group_name", given)
                if isinstance(name, str):
                    yield name


def _ranks(name: str) -> list[int]:
    if not dist.is_initialized():
        return [0]
    return dist.get_process_group_ranks(_resolve(name))


def _resolve(name: str) -> dist.ProcessGroup:
    find: Any = getattr(dist.distributed_c10d, "_resolve_process_group")  # noqa: B009 - not public
    return find(name)
