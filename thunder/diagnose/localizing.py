"""From a stage that gives a wrong result to the operator in it.

Where executors took over, regions and claimed operators are judged one by one on the values that
eager gives them, and the body of a wrong region is shrunk. Where a transform is wrong, the values
of both graphs are compared by name.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import fx
from torch.fx.node import map_arg

from thunder.diagnose.examination import Compile, Examination, Query
from thunder.diagnose.finding import Kind
from thunder.diagnose.problem import Piece, Problem
from thunder.diagnose.shrinking import Shrinker
from thunder.diagnose.workers import InProcess
from thunder.pipeline.judged_run import (
    Program,
    call_results,
    copy_values,
    judge_run,
    random_state_kept,
)
from thunder.trace.accuracy import AccuracyVerdict, compare_to_reference
from thunder.trace.copying import output_values
from thunder.trace.float64 import RandomDraws, run_in_float64
from thunder.trace.source_lines import SourceLine, source_line
from thunder.trace.targets import ClaimedOperator, FusedRegion
from thunder.trace.trace import TraceCtx


@dataclass(frozen=True, kw_only=True, slots=True)
class Place:
    """Where a result goes wrong.

    Attributes:
        operator: The operator, such as `aten.relu.default`; a region's name when no single
            operator of it is wrong.
        node: The node's name in the trace.
        line: The user's line.
        region: Name of the fusion region, if it is in one.
        executor: Name of the executor that ran it; None for a transform.
        verdict: The judgement on the operator or region alone; None for a transform.
        graph_module: A graph that shows it; None for a transform.
        inputs: Its inputs.
    """

    operator: str
    node: str
    line: SourceLine | None
    region: str | None = None
    executor: str | None = None
    verdict: AccuracyVerdict | None = None
    graph_module: fx.GraphModule | None = None
    inputs: tuple[Any, ...] = ()


def locate_in_execution(
    trace: TraceCtx, inputs: Sequence[Any], compile_piece: Compile
) -> Place | None:
    """Finds the first region or claimed operator that is wrong by itself.

    Args:
        trace: An execution trace.
        inputs: Its inputs.
        compile_piece: Compiles a piece of a region's body as the region was.

    Returns:
        The place; None when each is right by itself.
    """
    walk = _Walk(trace, compile_piece)
    with torch.no_grad(), random_state_kept():
        walk.run(*copy_values(list(inputs)))
    return walk.place


def locate_in_capture(
    graph_module: fx.GraphModule, inputs: Sequence[Any], compile_piece: Compile
) -> Place | None:
    """Finds the operator that is wrong after a graph was made into ATen graphs.

    Args:
        graph_module: The graph as captured.
        inputs: Its inputs.
        compile_piece: Makes of a piece what was made of the graph.

    Returns:
        The place; None when each piece is right by itself.
    """
    found = _smallest(Problem(graph_module, inputs), compile_piece)
    if found is None:
        return None
    return Place(
        operator=found.operator,
        node=found.node.name,
        line=source_line(found.node),
        graph_module=found.graph_module,
        inputs=found.inputs,
    )


def locate_change(before: TraceCtx, after: TraceCtx, inputs: Sequence[Any]) -> Place | None:
    """Finds the first node at which a transform changed the result.

    Args:
        before: The stage before the transform.
        after: The stage that it made.
        inputs: The inputs of both.

    Returns:
        The place; None when no node that both stages have differs.
    """
    with torch.no_grad(), random_state_kept() as state:
        with RandomDraws() as draws:
            expected = _values(before, copy_values(list(inputs)))
        state.restore()
        found = _values(after, copy_values(list(inputs)))
        copies = copy_values(list(inputs))
        try:
            reference = run_in_float64(lambda: _values(before, copies), draws.drawn)
        except (RuntimeError, TypeError, ValueError):  # it cannot run in float64
            reference = {}
    old = {node.name: node for node in before.graph.nodes}
    for node in after.graph.nodes:
        if node.op in ("placeholder", "output") or node.name not in expected:
            continue
        if node.name not in found:
            continue
        name = node.name
        verdict = compare_to_reference(expected[name], found[name], reference.get(name))
        if not verdict.accurate:
            changed = _first_changed(node, old)
            line = source_line(changed) or source_line(node)
            return Place(operator=str(changed.target), node=changed.name, line=line)
    # The wrong nodes have new names, and nothing that has an old one comes after them.
    pairs = zip(output_values(before.graph), output_values(after.graph), strict=False)
    for was, node in pairs:
        if not (isinstance(was, fx.Node) and isinstance(node, fx.Node)):
            continue
        values = expected.get(was.name), found.get(node.name), reference.get(was.name)
        if was.name != node.name and not compare_to_reference(*values).accurate:
            changed = _first_changed(node, old)
            line = source_line(changed) or source_line(was)
            return Place(operator=str(changed.target), node=changed.name, line=line)
    return None


class _Walk(fx.Interpreter):
    """Runs an execution trace; regions and claimed operators are judged and run op by op."""

    def __init__(self, trace: TraceCtx, compile_piece: Compile) -> None:
        super().__init__(trace.graph_module)
        self.extra_traceback = False
        self.place: Place | None = None
        inputs = trace.graph.find_nodes(op="placeholder")
        self._donated = {inputs[position] for position in trace.donated}
        self._compile_piece = compile_piece

    def run_node(self, n: fx.Node) -> Any:
        match n.target:
            case FusedRegion(graph_module=plain) | ClaimedOperator(operator=plain):
                args, kwargs = self.fetch_args_kwargs_from_env(n)
            case _:
                return super().run_node(n)
        if self.place is None:
            self._judge(n, plain, args, kwargs)
        return plain(*args, **kwargs)

    def _judge(self, node: fx.Node, plain: Any, args: Any, kwargs: Mapping[str, Any]) -> None:
        target: Any = node.target
        with random_state_kept():
            programs = _program(plain, kwargs), _program(target, kwargs)
            donated = [i for i, source in enumerate(node.args) if source in self._donated]
            verdict = judge_run(*programs, args, donated=donated)
            if verdict.accurate:
                return
            if isinstance(target, FusedRegion):
                self.place = _place_in_region(target, node, args, verdict, self._compile_piece)
            else:
                graph_module, inputs = _single(node, target, args, kwargs)
                self.place = Place(
                    operator=str(target.operator),
                    node=node.name,
                    line=source_line(node),
                    executor=target.executor,
                    verdict=verdict,
                    graph_module=graph_module,
                    inputs=inputs,
                )


def _place_in_region(
    region: FusedRegion,
    node: fx.Node,
    inputs: Sequence[Any],
    verdict: AccuracyVerdict,
    compile_piece: Compile,
) -> Place:
    lines = [source_line(inner) for inner in region.graph_module.graph.nodes]
    first = next((line for line in lines if line is not None), None)
    found = _smallest(Problem(region.graph_module, inputs), compile_piece)
    return Place(
        operator=found.operator if found else region.name,
        node=found.node.name if found else node.name,
        line=(source_line(found.node) if found else None) or first,
        region=region.name,
        executor=region.executor,
        verdict=verdict,
        graph_module=found.graph_module if found else region.graph_module,
        inputs=found.inputs if found else tuple(inputs),
    )


@dataclass(frozen=True, kw_only=True, slots=True)
class _Smallest:
    """The smallest wrong piece of a graph; its last operator is the culprit."""

    node: fx.Node
    graph_module: fx.GraphModule
    inputs: tuple[Any, ...]

    @property
    def operator(self) -> str:
        target = self.node.target
        named = isinstance(target, str | torch._ops.OpOverload)
        return str(target) if named else getattr(target, "__name__", str(target))


def _smallest(problem: Problem, compile_piece: Compile) -> _Smallest | None:
    piece = _shrink(problem, compile_piece)
    if piece is None:
        return None
    graph_module, values = problem.build(piece)
    operators = [node for node in graph_module.graph.nodes if node.op.startswith("call")]
    return _Smallest(node=operators[-1], graph_module=graph_module, inputs=tuple(values))


def _shrink(problem: Problem, compile_piece: Compile) -> Piece | None:
    """Shrinks a region's body; None when its pieces are right once they are compiled again."""
    examination = Examination(problem=problem, compile=compile_piece)

    workers = InProcess(examination.answer)
    whole = problem.piece(problem.removable)
    original = workers.ask(Query(problem.exposed(whole), True))
    if original.kind is not Kind.INACCURATE:
        original = workers.ask(Query(whole, True))
    if original.kind is not Kind.INACCURATE:
        return None
    shrinker = Shrinker(problem, workers, original, lambda piece: None)
    shrinker.run()
    return shrinker.best


def _single(
    node: fx.Node, target: ClaimedOperator, args: Any, kwargs: Mapping[str, Any]
) -> tuple[fx.GraphModule, tuple[Any, ...]]:
    """Returns a graph of one operator and its inputs."""
    graph = fx.Graph()
    inputs: list[Any] = []
    made: dict[fx.Node, Any] = {}
    values = dict(zip(_nodes(node.args), _nodes_values(node.args, args), strict=True))
    values |= dict(zip(_nodes(node.kwargs), _nodes_values(node.kwargs, kwargs), strict=True))
    for source, value in values.items():
        if isinstance(value, torch.Tensor):
            made[source] = graph.placeholder(source.name)
            made[source].meta.update(source.meta)
            inputs.append(value)
        else:
            made[source] = value
    call = graph.node_copy(node, lambda source: made[source])
    call.target = target.operator
    graph.output((call,))
    return fx.GraphModule({}, graph), tuple(copy_values(inputs))


def _nodes(tree: Any) -> list[fx.Node]:
    found: list[fx.Node] = []
    map_arg(tree, found.append)
    return found


def _nodes_values(tree: Any, values: Any) -> list[Any]:
    """Returns the values at the places of a tree where nodes are."""
    if isinstance(tree, fx.Node):
        return [values]
    if isinstance(tree, Mapping):
        return [v for key in tree for v in _nodes_values(tree[key], values[key])]
    if isinstance(tree, list | tuple):
        pairs = zip(tree, values, strict=True)
        return [v for part, value in pairs for v in _nodes_values(part, value)]
    return []


def _program(function: Callable[..., Any], kwargs: Mapping[str, Any]) -> Program:
    return lambda inputs: call_results(lambda *args: function(*args, **kwargs), inputs)


class _Values(fx.Interpreter):
    """Keeps the tensors of all nodes by name."""

    def __init__(self, trace: TraceCtx) -> None:
        super().__init__(trace.graph_module)
        self.extra_traceback = False
        self.values: dict[str, torch.Tensor] = {}

    def run_node(self, n: fx.Node) -> Any:
        value = super().run_node(n)
        if isinstance(value, torch.Tensor) and n.op == "call_function":
            self.values[n.name] = value
        return value


def _values(trace: TraceCtx, inputs: Sequence[Any]) -> dict[str, torch.Tensor]:
    interpreter = _Values(trace)
    interpreter.run(*inputs)
    return interpreter.values


def _first_changed(node: fx.Node, old: Mapping[str, fx.Node]) -> fx.Node:
    """Returns the node, or what was put in before it: the first one that is not as it was."""
    new = [source for source in node.all_input_nodes if source.name not in old]
    return _first_changed(new[0], old) if new else node
