"""Generated programs, cut at random, against eager.

Programs mix arithmetic, views, changes in place, gradient modes and outputs that alias. Those
that eager refuses, or that AOTAutograd gets wrong without any cut, are left out.
"""

from __future__ import annotations

import linecache
import random
from collections.abc import Iterator, Sequence
from typing import Any

import pytest
import torch
from torch import fx

from tests.dynamo import split_backend
from tests.dynamo.split_backend import SplitBackend, compare, copy_arguments, observe
from thunder.dynamo.split_reason import SplitReason, SplitReasonKind
from thunder.dynamo.splitting.ambient_state import is_marker

SEEDS_PER_TEST = 25

_FUNCTIONS = ("sin", "cos", "sinc", "tanh", "sigmoid", "exp")
_VIEWS = (
    ".t()",
    ".view(3, 3)",
    "[:, :]",
    ".detach()",
    ".clone()",
    ".transpose(0, 1)",
    ".contiguous()",
    ".flatten().view(3, 3)",
)
_CHANGES = (
    "{x}.add_({y}.detach() if {y} is {x} else {y})",
    "{x}.mul_(2)",
    "{x}.sin_()",
    "{x}[0] = 1.5",
    "{x}[1] = {y}[0]",
    "{x}.copy_({y})",
    "{x}.mul_({y})",
    "{x} += 1",
    "{x}.sigmoid_()",
)
_MODES = (
    "torch.no_grad()",
    "torch.enable_grad()",
    "torch.autocast('cpu', dtype=torch.bfloat16, enabled=False)",
)

# Gradients through outputs that are views made under torch.no_grad: eager gives none, a compiled
# graph that starts at the view's base gives zeros.
KNOWN = {3097}


class Generator:
    """Writes one program."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        self.arguments = [f"a{index}" for index in range(self.random.randint(2, 3))]
        self.gradients = [self.random.random() < 0.6 for _ in self.arguments]
        self.values = list(self.arguments)
        self.lines: list[str] = []
        self.depth = 1

    def source(self) -> str:
        for index in range(self.random.randint(6, 14)):
            self._add_line(f"v{index}")
        outputs = self.random.sample(self.values, min(len(self.values), self.random.randint(1, 4)))
        head = f"def program({', '.join(self.arguments)}):"
        return "\n".join([head, *self.lines, f"    return {', '.join(outputs)},", ""])

    def _add_line(self, name: str) -> None:
        x, y = self.random.choice(self.values[-5:]), self.random.choice(self.values)
        kind = self.random.random()
        if kind < 0.25:
            self._define(name, f"torch.{self.random.choice(_FUNCTIONS)}({x} * 0.5)")
        elif kind < 0.45:
            self._define(name, f"{x} {self.random.choice('+*-')} {y}")
        elif kind < 0.6:
            self._define(name, f"{x}{self.random.choice(_VIEWS)}")
        elif kind < 0.85:
            self._write(self.random.choice(_CHANGES).format(x=x, y=y))
        elif kind < 0.93 and self.depth < 3:
            self._write(f"with {self.random.choice(_MODES)}:")
            self.depth += 1
            self._define(name, f"{x} * 1.5")
        elif self.depth > 1:
            self.depth -= 1
        else:
            self._define(name, f"torch.sinc({x})")

    def _define(self, name: str, expression: str) -> None:
        self._write(f"{name} = {expression}")
        self.values.append(name)

    def _write(self, line: str) -> None:
        self.lines.append("    " * self.depth + line)


def build(source: str, seed: int) -> Any:
    """Makes the function; Dynamo finds its source."""
    name = f"<program {seed}>"
    linecache.cache[name] = (len(source), None, source.splitlines(True), name)
    namespace: dict[str, Any] = {"torch": torch}
    exec(compile(source, name, "exec"), namespace)
    return namespace["program"]


def cut_at_random(rng: random.Random) -> Any:
    """Makes what stands in for `find_unsupported`."""

    def find(graph_module: fx.GraphModule, exclude_ops: Sequence[Any]) -> dict[fx.Node, Any]:
        share = rng.choice([0.1, 0.25, 0.5])
        reason = SplitReason(kind=SplitReasonKind.EXCLUDED_OP, info="by chance", op="any")
        return {
            node: reason
            for node in graph_module.graph.nodes
            if node.op in ("call_function", "call_method")
            and not is_marker(node)
            and rng.random() < share
        }

    return find


def programs(seeds: Sequence[int]) -> Iterator[tuple[int, str, Any, Any, Any]]:
    """Yields what can be compared: seed, source, function, arguments and eager's results."""
    for seed in seeds:
        generator = Generator(seed)
        source = generator.source()
        function = build(source, seed)
        randomness = torch.Generator().manual_seed(seed)
        arguments = [
            torch.randn(3, 3, generator=randomness).requires_grad_(gradient)
            for gradient in generator.gradients
        ]
        try:
            wanted = observe(function, copy_arguments(arguments))
            torch._dynamo.reset()
            whole = torch.compile(function, backend="aot_eager")
            compare(observe(whole, copy_arguments(arguments)), wanted, 1e-4)
        except (RuntimeError, AssertionError):
            continue
        yield seed, source, function, arguments, wanted


@pytest.mark.parametrize("first", range(0, 400, SEEDS_PER_TEST))
def test_programs_cut_at_random(first, monkeypatch):
    seeds = [seed for seed in range(first, first + SEEDS_PER_TEST) if seed not in KNOWN]
    cut = 0
    for seed, source, function, arguments, wanted in programs(seeds):
        rng = random.Random(seed)
        monkeypatch.setattr(split_backend, "find_unsupported", cut_at_random(rng))
        torch._dynamo.reset()
        backend = SplitBackend(())
        try:
            got = observe(torch.compile(function, backend=backend), copy_arguments(arguments))
            compare(got, wanted, 1e-4)
        except Exception as error:
            raise AssertionError(f"seed {seed}:\n{source}") from error
        cut += len(backend.splits)
    assert cut
