"""Who enters the contest of `executors="auto"`: lists of executors that could run a graph.

The first entrant is what runs when nobody measures. Choosing between them is the business of
`pipeline/contest.py`.
"""

from __future__ import annotations

import importlib.util
from collections.abc import Collection
from dataclasses import dataclass

from thunder.executors.base import AbstractExecutor
from thunder.executors.registry import contest_executors, get_executor


@dataclass(frozen=True, kw_only=True, slots=True)
class Entrant:
    """A way to run a graph.

    Attributes:
        name: Name of the executor that is asked first.
        executors: The executors to ask, in order; the last takes everything.
    """

    name: str
    executors: tuple[AbstractExecutor, ...]


def contest_entrants(device_types: Collection[str]) -> tuple[Entrant, ...]:
    """Returns who can run a graph on these devices, the one that needs no contest first.

    Args:
        device_types: Types of the devices of the graph's tensors, such as `{"cuda"}`.

    Returns:
        Inductor, which compiles the whole graph as `torch.compile` does; on CUDA also nvFuser,
        when it is installed, and ATen; and the executors registered with `enter_contest=True`.

    Example:
        >>> [entrant.name for entrant in contest_entrants({"cpu"})]
        ['inductor']
    """
    inductor, aten = get_executor("inductor"), get_executor("aten")
    on_cuda = "cuda" in device_types
    fusing = [*contest_executors()]
    if on_cuda and importlib.util.find_spec("nvfuser_direct") is not None:
        fusing.insert(0, get_executor("nvfuser"))
    return (
        Entrant(name=inductor.name, executors=(inductor, aten)),
        *(Entrant(name=one.name, executors=(one, inductor, aten)) for one in fusing),
        *([Entrant(name=aten.name, executors=(aten,))] if on_cuda else []),
    )
