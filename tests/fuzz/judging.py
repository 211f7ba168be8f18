"""Compares a program with eager: values, gradients, changed inputs, strides, shared memory."""

from __future__ import annotations

import warnings
from collections import Counter
from collections.abc import Callable
from typing import Any

import torch
from torch.utils import _pytree as pytree

from tests.dynamo.split_backend import SplitBackend, observe
from thunder import get_subgraph_info, thunderfx

SEEDS = (0, 1, 0)
"""Seeds of the calls' arguments: the first compiles, the second may take other branches."""


CUT_OFF = (
    *("sin", "mul", "where", "sum", "cat", "relu", "dropout", "clone", "to"),
    *("transpose", "view_as", "detach", "add_", "copy_", "zero_", "t_"),
)
"""Operators of the programs that end a region: arithmetic, reductions, copies, views, writes."""

Compile = Callable[[Callable[..., Any]], Callable[..., Any]]


def by_thunder(function: Callable[..., Any]) -> Callable[..., Any]:
    return thunderfx(function, executors=["aten"], on_failure="raise")


def in_pieces(function: Callable[..., Any]) -> Callable[..., Any]:
    """Splits as thunder does, and spares Inductor's C++ compiler."""
    return torch.compile(function, backend=SplitBackend(CUT_OFF))


def judge(
    function: Callable[..., Any],
    make_arguments: Callable[[int], Any],
    counts: Counter[str],
    compile: Compile = by_thunder,
) -> str | None:
    """Compiles a program and says what is wrong with it, or returns None.

    A program that fails through `torch.compile(backend="aot_eager")` too counts as excused.

    Args:
        function: The program.
        make_arguments: Makes its arguments from a seed.
        counts: Told what became of it: `passed`, `excused`, `failed`; and the number of graphs.
        compile: The compiler.
    """
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        wanted = {seed: _seen_in_eager(function, make_arguments, seed) for seed in SEEDS}
        torch._dynamo.reset()
        compiled = compile(function)
        problem = _problem(compiled, make_arguments, wanted)
        if compile is by_thunder:
            counts["graphs"] += len(get_subgraph_info(compiled))
        if problem is None:
            counts["passed"] += 1
            return None
        torch._dynamo.reset()
        rule = _problem(torch.compile(function, backend="aot_eager"), make_arguments, wanted)
    counts["failed" if rule is None else "excused"] += 1
    return problem if rule is None else None


def _seen_in_eager(
    function: Callable[..., Any], make_arguments: Callable[[int], Any], seed: int
) -> Any:
    try:
        return observe(function, make_arguments(seed))
    except Exception:  # noqa: BLE001 - a call that eager refuses is of no interest
        return None


def _problem(
    compiled: Callable[..., Any], make_arguments: Callable[[int], Any], wanted: dict[int, Any]
) -> str | None:
    for number, seed in enumerate(SEEDS):
        if wanted[seed] is None:
            continue
        where = f"call {number} (arguments of seed {seed})"
        try:
            got = observe(compiled, make_arguments(seed))
        except Exception as error:  # noqa: BLE001 - whatever a compiler raises is its failure
            return f"{where}: {type(error).__name__}: {str(error)[:1500]}"
        problem = _difference(got, wanted[seed])
        if problem:
            return f"{where}: {problem}"
    return None


def _difference(got: Any, wanted: Any) -> str | None:
    if pytree.tree_structure(got) != pytree.tree_structure(wanted):
        return "None in place of a value, or the other way round"
    pairs = zip(pytree.tree_leaves(got), pytree.tree_flatten_with_path(wanted)[0], strict=True)
    for one, (path, other) in pairs:
        if isinstance(other, torch.Tensor):
            try:
                torch.testing.assert_close(one, other, equal_nan=True)
            except AssertionError as error:
                return f"{pytree.keystr(path)}: {error}"
        elif isinstance(one, torch.Tensor) or (one != other and one == one):
            return f"{pytree.keystr(path)}: {one} instead of {other}"
    return None
