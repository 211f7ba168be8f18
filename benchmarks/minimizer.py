"""How fast a failing graph is shrunk, beside PyTorch's own minifier on the same graph.

The graph is the ATen forward graph of an embedding, three MLP blocks and a head (98 nodes or so,
as Inductor gets it). Failures are injected: into Inductor by its own test switch, as an error of
the C++ compiler or as a wrong `relu`; and by an executor that raises, or is wrong, for `relu`.

PyTorch's minifier is `functorch.compile.minifier`, run in this process with the same compiler in
its check. As `TORCHDYNAMO_REPRO_AFTER` uses it, each check is a process with imports and a compile
of its own, which costs several seconds more a query.
Run as `python benchmarks/minimizer.py --help`.
"""

from __future__ import annotations

import argparse
import contextlib
import io
import os
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from functorch.compile import minifier
from torch import fx, nn
from torch._inductor import config as inductor_config
from torch._inductor.utils import fresh_cache

import thunder
from thunder.diagnose import minimize
from thunder.diagnose.recording import RecordingBackend
from thunder.dynamo import ThunderCompiler
from thunder.executors import OperatorExecutor
from thunder.trace.copying import copy_graph_module


class Block(nn.Module):
    """An MLP with a residual connection."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(width)
        self.up = nn.Linear(width, 2 * width)
        self.down = nn.Linear(2 * width, width)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Computes the block."""
        return x + self.down(self.up(self.norm(x)).relu())


class Model(nn.Module):
    """Embedding, three blocks, head and loss."""

    def __init__(self, width: int = 32, words: int = 64) -> None:
        super().__init__()
        self.embedding = nn.Embedding(words, width)
        self.blocks = nn.ModuleList(Block(width) for _ in range(3))
        self.head = nn.Linear(width, words)

    def forward(self, tokens: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
        """Computes the loss."""
        x = self.embedding(tokens)
        for block in self.blocks:
            x = block(x)
        logits = self.head(x)
        return nn.functional.cross_entropy(logits.flatten(0, 1), targets.flatten())


@dataclass(frozen=True, kw_only=True, slots=True)
class Case:
    """A failure to be shrunk.

    Attributes:
        name: Its name on the command line.
        executors: What compiles the graph.
        inductor_bug: The value of Inductor's test switch; None leaves it alone.
        check: What is looked for.
    """

    name: str
    executors: tuple[Any, ...]
    inductor_bug: str | None
    check: str


def _refuse(x: torch.Tensor) -> torch.Tensor:
    raise NotImplementedError("this relu is not there")


RELU = torch.ops.aten.relu
REFUSING = OperatorExecutor("refusing", {RELU: _refuse})
WRONG = OperatorExecutor("wrong", {RELU: lambda x: x.clamp(min=0.01)})
CASES = (
    Case(name="executor-error", executors=(REFUSING, "aten"), inductor_bug=None, check="error"),
    Case(name="executor-wrong", executors=(WRONG, "aten"), inductor_bug=None, check="accuracy"),
    Case(
        name="inductor-error",
        executors=("inductor",),
        inductor_bug="compile_error",
        check="error",
    ),
    Case(
        name="inductor-wrong",
        executors=("inductor",),
        inductor_bug="accuracy",
        check="accuracy",
    ),
)


@dataclass(frozen=True, kw_only=True, slots=True)
class Row:
    """One line of the table."""

    case: str
    tool: str
    before: int
    after: int
    queries: int
    seconds: float


def aten_graph() -> tuple[fx.GraphModule, list[Any]]:
    """Returns the forward graph that Inductor gets, and real inputs."""
    torch.manual_seed(0)
    options = ThunderCompiler(executors=["inductor"]).options
    backend = RecordingBackend(options)
    compiled = torch.compile(Model(), backend=backend)
    compiled(torch.randint(64, (2, 8)), torch.randint(64, (2, 8)))
    call = backend.graphs[0].calls[0]
    return call.traces[0].graph_module, [value.detach() for value in call.inputs[0]]


@contextlib.contextmanager
def injected(case: Case) -> Iterator[None]:
    """Switches the failure on."""
    switch = {"cpp.inject_relu_bug_TESTING_ONLY": case.inductor_bug, "fx_graph_cache": False}
    # What one tool compiled must not come out of a cache for the other.
    with inductor_config.patch(switch), fresh_cache():
        yield


def measure_thunder(case: Case, graph: fx.GraphModule, inputs: Sequence[Any], folder: Path) -> Row:
    """Shrinks the graph by `minimize`; the time includes running the script at the end."""
    started = time.perf_counter()
    result = minimize(
        graph,
        inputs=inputs,
        compile_options={"executors": list(case.executors)},
        check=case.check,  # type: ignore[arg-type]
        folder=folder,
        progress=False,
    )
    whole = time.perf_counter() - started
    print(f"  {result.failure.splitlines()[0]}")
    print(f"  script: {result.verdict}; {whole:.1f} s with writing and running it")
    return Row(
        case=case.name,
        tool="thunder",
        before=result.nodes_before,
        after=result.nodes_after,
        queries=result.queries,
        seconds=result.seconds,
    )


def measure_torch(case: Case, graph: fx.GraphModule, inputs: Sequence[Any]) -> Row:
    """Shrinks the graph by PyTorch's minifier, with the same compiler in its check."""
    queries = 0

    def run(module: fx.GraphModule, values: Sequence[Any]) -> Any:
        torch._dynamo.reset()
        return thunder.jit(copy_graph_module(module), executors=list(case.executors))(*values)

    def fails(module: fx.GraphModule, values: Sequence[Any]) -> bool:
        nonlocal queries
        queries += 1
        try:
            found = run(module, values)
        except Exception as error:  # noqa: BLE001 (the failure that is looked for)
            return case.check == "error" and root(error) == expected
        if case.check == "error":
            return False
        return not torch._dynamo.utils.same(list(module(*values)), list(found), tol=1e-3)

    expected = None
    if case.check == "error":
        try:
            run(graph, inputs)
        except Exception as error:  # noqa: BLE001 (as above)
            expected = root(error)
    started = time.perf_counter()
    with contextlib.redirect_stdout(io.StringIO()):
        small, _ = minifier(copy_graph_module(graph), list(inputs), fails, lambda *_: None)
    return Row(
        case=case.name,
        tool="torch, in one process",
        before=len(graph.graph.nodes),
        after=len(small.graph.nodes),
        queries=queries,
        seconds=time.perf_counter() - started,
    )


def root(error: BaseException) -> tuple[type, str]:
    """Returns class and first line of the cause of an error."""
    while error.__cause__ is not None:
        error = error.__cause__
    return type(error), str(error).split("\n", 1)[0]


def main() -> None:
    """Measures the cases and prints a table."""
    parser = argparse.ArgumentParser(description=__doc__)
    names = [case.name for case in CASES]
    parser.add_argument("--cases", nargs="+", choices=names, default=names)
    parser.add_argument("--without-torch", action="store_true", help="leave PyTorch's out")
    arguments = parser.parse_args()
    os.environ["THUNDER_REPRODUCERS"] = "off"  # PyTorch's minifier must not pay for scripts
    graph, inputs = aten_graph()
    rows = []
    with tempfile.TemporaryDirectory() as folder:
        for case in (case for case in CASES if case.name in arguments.cases):
            print(case.name, flush=True)
            with injected(case):
                rows.append(measure_thunder(case, graph, inputs, Path(folder)))
            if not arguments.without_torch:
                with injected(case):
                    rows.append(measure_torch(case, graph, inputs))
    load = ", ".join(f"{figure:.1f}" for figure in os.getloadavg())
    print(f"\n{os.cpu_count()} cores, load {load}, {torch.get_num_threads()} threads")
    print(f"{'case':16} {'tool':22} {'nodes':>9} {'queries':>8} {'seconds':>8}")
    for row in rows:
        nodes = f"{row.before} -> {row.after}"
        print(f"{row.case:16} {row.tool:22} {nodes:>9} {row.queries:>8} {row.seconds:>8.1f}")


if __name__ == "__main__":
    main()
