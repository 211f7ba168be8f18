"""Which executors exist, by name, and what an executor list of the user's stands for."""

from __future__ import annotations

import importlib
import re
from collections.abc import Iterable, Sequence

from torch._inductor.decomposition import decompositions

from thunder.errors import OptionError, nearest
from thunder.executors.base import AbstractExecutor, AbstractFusionExecutor

ExecutorLike = AbstractExecutor | str

_BUILT_IN = {
    "aten": "thunder.executors.aten:AtenExecutor",
    "inductor": "thunder.executors.inductor:InductorExecutor",
    "nvfuser": "thunder.executors.nvfuser.executor:NvFuserExecutor",
}
_NAME = re.compile(r"\w[\w.+-]*")

_registered: dict[str, AbstractExecutor] = {}
_entered: dict[str, AbstractExecutor] = {}


def register_executor(
    executor: AbstractExecutor, *, enter_contest: bool = False
) -> AbstractExecutor:
    """Makes an executor known by its name, so that `executors=["name"]` finds it.

    Args:
        executor: An operator or fusion executor.
        enter_contest: Whether `executors="auto"` may choose it too, where it is correct and
            faster than Inductor alone. See `contest=`.

    Returns:
        The executor.

    Raises:
        OptionError: Another executor has that name, or the name is no word, or it cannot enter
            the contest: all entrants get the same graph, in which operators are decomposed as
            Inductor wants them.
    """
    if not isinstance(executor, AbstractExecutor):
        raise OptionError(f"an executor is an AbstractExecutor instance, not {executor!r}")
    _check_names(executor)
    owner = _registered.get(executor.name, _BUILT_IN.get(executor.name))
    if owner is not None and owner is not executor:
        raise OptionError(f"the executor name {executor.name!r} is taken by {owner!r}")
    kept = [op for op in executor.undecomposed_ops() if op in decompositions]
    if enter_contest and kept:
        raise OptionError(
            f"{executor.name!r} cannot enter the contest: it takes operators that Inductor "
            f"decomposes, such as {kept[0]}. Ask for it with executors=[{executor.name!r}]"
        )
    _registered[executor.name] = executor
    if enter_contest:
        _entered[executor.name] = executor
    return executor


def deregister_executor(name: str) -> None:
    """Forgets an executor that `register_executor` made known; unknown names are ignored."""
    _registered.pop(name, None)
    _entered.pop(name, None)


def contest_executors() -> list[AbstractExecutor]:
    """Returns the executors that were registered with `enter_contest=True`, in that order."""
    return list(_entered.values())


def known_executors() -> list[str]:
    """Returns the names of all executors, sorted."""
    return sorted({*_BUILT_IN, *_registered})


def get_executor(name: str) -> AbstractExecutor:
    """Returns the executor of that name; it is loaded when first asked for.

    Raises:
        OptionError: No executor has that name; the message lists those that exist.
    """
    if name in _registered:
        return _registered[name]
    if name not in _BUILT_IN:
        close = nearest(name, known_executors())
        hint = f"; did you mean {close!r}?" if close else ""
        raise OptionError(
            f"no executor is called {name!r}{hint}. Known: {', '.join(known_executors())}. "
            "Make your own known with thunder.executors.register_executor"
        )
    module, _, attribute = _BUILT_IN[name].partition(":")
    _registered[name] = getattr(importlib.import_module(module), attribute)()
    return _registered[name]


def resolve_executors(
    executors: ExecutorLike | Sequence[ExecutorLike],
) -> tuple[AbstractExecutor, ...]:
    """Turns what the user wrote into the executors to ask, in order.

    Args:
        executors: `"auto"`, one name or executor, or a list of them, most wanted first.

    Returns:
        The executors; `aten`, which takes everything, is the last.

    Raises:
        OptionError: A name is unknown or no word, an element is no executor, or two share a name.
    """
    wanted: Sequence[ExecutorLike]
    if isinstance(executors, str):
        wanted = ("inductor",) if executors == "auto" else (executors,)
    else:
        wanted = tuple(executors) if isinstance(executors, Iterable) else (executors,)
    found: list[AbstractExecutor] = []
    for executor in (*wanted, "aten"):
        made = get_executor(executor) if isinstance(executor, str) else executor
        if not isinstance(made, AbstractExecutor):
            raise OptionError(
                f"executors= takes names ({', '.join(known_executors())}) and executors such as "
                f"thunder.executors.OperatorExecutor(...), not {executor!r}"
            )
        if made not in found:
            _check_names(made)
            found.append(made)
    names = [executor.name for executor in found]
    for name in names:
        if names.count(name) > 1:
            raise OptionError(f"two executors of the list are called {name!r}")
    return tuple(found)


def _check_names(executor: AbstractExecutor) -> None:
    """Raises OptionError for names that cannot be parts of traces and of file names."""
    stem = executor.fusion_stem if isinstance(executor, AbstractFusionExecutor) else executor.name
    for name in (executor.name, stem):
        if not _NAME.fullmatch(name):
            raise OptionError(
                f"an executor's name stands in traces and in names of files: {name!r} must be one "
                "word of letters, digits, '_', '-', '+' and '.'"
            )
