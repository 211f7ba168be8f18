"""`TraceCtx`: an fx graph with its provenance, which prints itself and runs."""

from __future__ import annotations

import enum
import itertools
import linecache
import os
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, final

from torch import fx

from thunder.debug.directory import Directory
from thunder.trace.bound_symbol import BoundSymbol, bound_symbols
from thunder.trace.printer import Program, print_function, print_program
from thunder.trace.targets import FusedRegion


class Direction(str, enum.Enum):
    """Which way a graph runs; the value names its function."""

    FORWARD = "forward"
    BACKWARD = "backward"
    INFERENCE = "inference"
    PROLOGUE = "prologue"
    CAPTURED = "captured"


@dataclass(frozen=True, slots=True)
class Provenance:
    """Where a trace comes from.

    Attributes:
        pass_name: The pass that made it.
        milliseconds: Wall time of that pass.
    """

    pass_name: str
    milliseconds: float


@final
@dataclass(frozen=True, eq=False, kw_only=True)
class TraceCtx:
    """One stage of one graph.

    Attributes:
        graph_module: The fx graph and the tensors that it holds. Not to be changed.
        direction: Which way it runs.
        provenance: The pass that made it, with its time.
        frees: Whether it deletes each value after its last use.
        notes: Sentences for the top of the printed program.
        donated: Positions of the inputs that compiled code may overwrite: values saved for a
            backward graph that nobody else reads.

    Example:
        >>> import torch, thunder
        >>> f = thunder.jit(lambda x: x.sin() + 1, executors=["aten"])
        >>> _ = f(torch.zeros(2))
        >>> print(thunder.last_traces(f)[-1].python_callable()(torch.zeros(2)))
        (tensor([1., 1.]),)
    """

    graph_module: fx.GraphModule
    direction: Direction
    provenance: Provenance
    frees: bool = False
    notes: tuple[str, ...] = ()
    donated: frozenset[int] = frozenset()

    @property
    def graph(self) -> fx.Graph:
        """The fx graph."""
        return self.graph_module.graph

    @property
    def bound_symbols(self) -> list[BoundSymbol]:
        """A read view of the nodes, in order."""
        return bound_symbols(self.graph_module)

    def python(self) -> str:
        """Returns a complete program: imports, one main function, what it refers to.

        Returns:
            Python source. It runs by itself; fusion regions then run op by op.
        """
        header = (f"{self.direction.value}: {self.provenance.pass_name}", *self.notes)
        return print_program(
            self.graph_module, name=self.direction.value, header=header, frees=self.frees
        )

    def __str__(self) -> str:
        """The same text as `python()`."""
        return self.python()

    def __repr__(self) -> str:
        """Names the trace in one line."""
        count = len(self.graph.nodes)
        return f"<TraceCtx {self.direction.value}: {self.provenance.pass_name}, {count} nodes>"

    def python_ctx(self) -> dict[str, Any]:
        """Returns the objects behind the names of the main function: the compiled fusions too."""
        return _context(self._program())

    def python_callable(self) -> Callable[..., Any]:
        """Returns the main function with the compiled fusions behind it.

        Returns:
            A function that takes the graph's inputs positionally.
        """
        return self._function(self._program())

    def boxed_callable(self) -> Callable[[list[Any]], Any]:
        """Returns the main function as AOTAutograd calls it: with one list that it clears."""
        function = self._function(self._program(boxed=True))
        function._boxed_call = True  # pyright: ignore[reportFunctionMemberAccess] - torch's mark
        return function

    def save(self, path: str | os.PathLike[str]) -> Path:
        """Writes the program to a file.

        Args:
            path: The file; it is replaced at once or not at all. Its folder is made when it is
                missing.

        Returns:
            The path.

        Raises:
            OSError: It cannot be written.
        """
        target = Path(path)
        folder = Directory.create(target.parent)
        try:
            folder.write(target.name, self.python().encode())
        finally:
            folder.close()
        return target

    def _program(self, *, boxed: bool = False) -> Program:
        return print_function(
            self.graph_module, name=self.direction.value, frees=self.frees, boxed=boxed
        )

    def _function(self, program: Program) -> Callable[..., Any]:
        context = _context(program)
        file_name = f"<thunder {self.direction.value} {next(_program_numbers)}>"
        source = f"{program.main}\n"
        exec(compile(source, file_name, "exec"), context)
        linecache.cache[file_name] = (len(source), None, source.splitlines(True), file_name)
        return context[self.direction.value]


_program_numbers = itertools.count()


def _context(program: Program) -> dict[str, Any]:
    roots = {module.partition(".")[0] for module in program.names.imported()}
    context: dict[str, Any] = {root: sys.modules[root] for root in sorted(roots)}
    for name, value in program.names.objects.items():
        context[name] = value.compiled if isinstance(value, FusedRegion) else value
    return context
