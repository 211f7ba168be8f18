"""The first run of a compiled graph: watched, checked, and undone when it fails.

Later runs call the compiled code directly. What the first run costs on top is one pass over the
outputs' metadata, copies of the inputs that the graph writes to, and keeping the inputs alive
while it lasts (left out on CUDA when they would take a good part of the free memory).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import fx

from thunder.errors import ExecutorError, UnrepeatableRunError
from thunder.executors.grouping import is_write
from thunder.pipeline.promises import (
    Broken,
    broken_by_graph,
    broken_by_node,
    broken_by_results,
)
from thunder.trace.communication import communicates
from thunder.trace.copying import output_values
from thunder.trace.source_lines import source_line
from thunder.trace.targets import CLAIM, ClaimedOperator, FusedRegion
from thunder.trace.trace import TraceCtx

_KEPT_SHARE_OF_FREE_MEMORY = 0.25

Run = Callable[[list[Any]], Sequence[Any]]


@dataclass(frozen=True, slots=True)
class Snapshot:
    """What must be put back before a graph can be run again.

    Attributes:
        inputs: The inputs, in order.
        written: For each input that the graph writes to, its position and a copy.
        cpu_rng_state: State of the CPU generator.
        cuda_rng_states: State of each CUDA generator in use, by device index.
    """

    inputs: tuple[Any, ...]
    written: tuple[tuple[int, torch.Tensor], ...]
    cpu_rng_state: torch.Tensor
    cuda_rng_states: tuple[tuple[int, torch.Tensor], ...]

    def restore(self) -> list[Any]:
        """Puts inputs and random state back; returns the inputs."""
        for position, copy in self.written:
            self.inputs[position].detach().copy_(copy)
        torch.set_rng_state(self.cpu_rng_state)
        for device, state in self.cuda_rng_states:
            torch.cuda.set_rng_state(state, device)
        return list(self.inputs)


def take_snapshot(graph: fx.Graph, inputs: Sequence[Any]) -> Snapshot | None:
    """Keeps what a second run would need.

    Args:
        graph: The ATen graph that is about to run.
        inputs: Its inputs.

    Returns:
        The snapshot; None where keeping the inputs alive could cost the run its memory.
    """
    tensors = [value for value in inputs if isinstance(value, torch.Tensor)]
    devices = sorted({t.device.index for t in tensors if t.device.type == "cuda"})
    if not _affordable(tensors, devices):
        return None
    return Snapshot(
        inputs=tuple(inputs),
        written=tuple((i, inputs[i].detach().clone()) for i in written_inputs(graph)),
        cpu_rng_state=torch.get_rng_state(),
        cuda_rng_states=tuple((device, torch.cuda.get_rng_state(device)) for device in devices),
    )


def run_checked(
    trace: TraceCtx, run: Run, inputs: list[Any], promised: Sequence[Any]
) -> Sequence[Any]:
    """Runs a graph for the first time.

    Args:
        trace: The execution trace.
        run: What later runs call; called here when it is one region.
        inputs: The graph's inputs; cleared.
        promised: `promised_outputs` of the graph as it was before any transform. AOTAutograd and
            the other graph were made for these.

    Returns:
        The graph's outputs.

    Raises:
        ExecutorError: An operator or region raised, or returned something else than the graph
            promises; names it, its executor and the user's line.
    """
    interpreter = _CheckedInterpreter(trace)
    try:
        outputs = _run_whole_or_by_node(trace, run, inputs, interpreter)
        _check_promised(trace, promised, outputs)
        return outputs
    except ExecutorError as error:
        if interpreter.communicated:
            advice = _ADVICE_ON_PEERS if interpreter.in_collective else _ADVICE
            raise UnrepeatableRunError(f"{error}\n{advice}") from error.__cause__
        raise


_ADVICE = (
    "The graph had communicated with other ranks before, so this rank alone cannot run it in "
    "another way, as on_failure='fallback' would. Leave out what failed, on all ranks: name other "
    "executors=, or the operator in exclude_ops="
)
_ADVICE_ON_PEERS = (
    "It communicates with other ranks, of which one may have failed before: see what they report"
)


def _run_whole_or_by_node(
    trace: TraceCtx, run: Run, inputs: list[Any], interpreter: _CheckedInterpreter
) -> Sequence[Any]:
    whole = [node for node in trace.graph.nodes if isinstance(node.target, FusedRegion)]
    if len(whole) == 1 and not _runs_anything_else(trace.graph):
        interpreter.note(whole[0])
        try:
            outputs = run(inputs)
        except torch.OutOfMemoryError:
            raise
        except Exception as error:
            raise _failed(whole[0], trace, error) from error
        _require(broken_by_results(output_values(trace.graph), list(outputs)), whole[0], trace)
        return outputs
    arguments = tuple(inputs)
    inputs.clear()
    return interpreter.run(*arguments)


class _CheckedInterpreter(fx.Interpreter):
    """Runs a trace node by node and compares each result with what the graph promises."""

    def __init__(self, trace: TraceCtx) -> None:
        super().__init__(trace.graph_module, garbage_collect_values=True)
        self.trace = trace
        self.extra_traceback = False
        self.communicated = False
        self.in_collective = False

    def note(self, node: fx.Node) -> None:
        """Notes that a node is about to run."""
        self.in_collective = communicates(node) and not isinstance(node.target, FusedRegion)
        self.communicated = self.communicated or communicates(node)

    def run_node(self, n: fx.Node) -> Any:
        self.note(n)
        try:
            result = super().run_node(n)
        except torch.OutOfMemoryError:
            raise
        except Exception as error:
            raise _failed(n, self.trace, error) from error
        if isinstance(n.target, FusedRegion | ClaimedOperator):
            _require(broken_by_node(n, result), n, self.trace)
        return result


def _affordable(tensors: Sequence[torch.Tensor], devices: Sequence[int]) -> bool:
    for device in devices:
        kept = sum(t.nbytes for t in tensors if t.device.index == device and t.is_cuda)
        free, _ = torch.cuda.mem_get_info(device)
        if kept > free * _KEPT_SHARE_OF_FREE_MEMORY:
            return False
    return True


def written_inputs(graph: fx.Graph) -> list[int]:
    """Returns the positions of the tensors that a graph writes to."""
    inputs = graph.find_nodes(op="placeholder")
    writes = [node for node in graph.nodes if node.op == "call_function" and is_write(node)]
    sources = {source for node in writes for source in node.all_input_nodes}
    return [
        position
        for position, node in enumerate(inputs)
        if node in sources and isinstance(node.meta.get("val"), torch.Tensor)
    ]


def _runs_anything_else(graph: fx.Graph) -> bool:
    return any(CLAIM in node.meta and not _is_output(node) for node in graph.nodes)


def _is_output(node: fx.Node) -> bool:
    return bool(node.args) and isinstance(getattr(node.args[0], "target", None), FusedRegion)


def _require(broken: Broken | None, node: fx.Node, trace: TraceCtx) -> None:
    if broken:
        wanted, got = broken
        raise ExecutorError(
            f"{_what(node, trace)} returned {got}; the graph promises {wanted}{_where(node)}"
        )


def _check_promised(trace: TraceCtx, promised: Sequence[Any], outputs: Sequence[Any]) -> None:
    """Checks what a graph returns, whoever computed it: a transform may have changed it."""
    if len(outputs) != len(promised):
        raise ExecutorError(
            f"the {trace.direction.value} graph returned {len(outputs)} outputs, and "
            f"AOTAutograd promised {len(promised)}: a transform changed their number"
        )
    if found := broken_by_graph(trace.graph, promised, outputs):
        position, (wanted, got) = found
        source = output_values(trace.graph)[position]
        raise ExecutorError(
            f"the {trace.direction.value} graph returned {got} as output {position}, and "
            f"AOTAutograd promised {wanted}: a transform changed what it computes"
            f"{_where(source) if isinstance(source, fx.Node) else ''}"
        )


def _failed(node: fx.Node, trace: TraceCtx, error: Exception) -> ExecutorError:
    return ExecutorError(
        f"{_what(node, trace)} failed when it was first run: {type(error).__name__}: {error}"
        f"{_where(node)}"
    )


def _what(node: fx.Node, trace: TraceCtx) -> str:
    target = node.target
    claim = node.meta.get(CLAIM)
    executor = getattr(target, "executor", None) or getattr(claim, "executor", "aten")
    name = getattr(target, "name", None) if isinstance(target, FusedRegion) else str(target)
    if isinstance(target, ClaimedOperator):
        name = f"{target.name} (for {target.operator})"
    return f"{name} of executor {executor!r} in the {trace.direction.value} graph"


def _where(node: fx.Node) -> str:
    """The user's line, on a line of its own: a script that fails the same way has another."""
    line = source_line(node)
    if line is None and isinstance(node.target, FusedRegion):
        lines = [source_line(inner) for inner in node.target.graph_module.graph.nodes]
        line = next((found for found in lines if found is not None), None)
    return f"\nfrom {line}" if line else ""
