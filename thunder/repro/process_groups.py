"""Process groups that a graph communicates over, as stubs of one process.

With torch's fake backend collectives return without talking to anybody, so that a region of a
run with several ranks runs alone: shapes are right, values that would come from others are not.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

import torch
import torch.distributed as dist
from torch import fx

from thunder.repro.collecting import SourceCollector

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
    sizes = {name: _size_and_rank(name) for name in names}
    world_size, rank = _size_and_rank(None)
    if not dist.is_initialized():
        world_size = max([size for size, _ in sizes.values()], default=1)
    collector.names.modules |= {
        "torch.distributed",
        "torch.testing._internal.distributed.fake_pg",
    }
    collector.note(
        "process groups are stubs of one process: collectives have the right shapes, and the "
        "values of other ranks are missing"
    )
    lines = [
        f'torch.distributed.init_process_group("fake", rank={rank}, world_size={world_size}, '
        "store=torch.testing._internal.distributed.fake_pg.FakeStore())",
        "for group_name, ranks in {",
        *(f"    {name!r}: {_ranks(name, size)}," for name, (size, _) in sizes.items()),
        "}.items():",
        "    group = torch.distributed.new_group(ranks)",
        "    torch._C._distributed_c10d._register_process_group(group_name, group)",
    ]
    collector.define("process groups", "\n".join(lines))


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


def _size_and_rank(name: str | None) -> tuple[int, int]:
    if not dist.is_available() or not dist.is_initialized():
        return 1, 0
    group = None if name is None else _resolve(name)
    return dist.get_world_size(group), max(dist.get_rank(group), 0)


def _ranks(name: str, size: int) -> list[int]:
    if not dist.is_initialized():
        return list(range(size))
    return dist.get_process_group_ranks(_resolve(name))


def _resolve(name: str) -> dist.ProcessGroup:
    find: Any = getattr(dist.distributed_c10d, "_resolve_process_group")  # noqa: B009 - not public
    return find(name)
