"""`minimize`: a failing or inaccurate graph, shrunk to the few operators that matter."""

from __future__ import annotations

import contextlib
import dataclasses
import os
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, get_args

import torch
from torch import fx

from thunder.debug import debug_folder
from thunder.diagnose.display import Display
from thunder.diagnose.examination import Examination, Query, UserCheck
from thunder.diagnose.finding import Finding, Kind
from thunder.diagnose.interruption import completed
from thunder.diagnose.problem import Piece, Problem
from thunder.diagnose.scripts import write_minimal_script
from thunder.diagnose.shrinking import Shrinker
from thunder.diagnose.target import Target, resolve_target
from thunder.diagnose.workers import AbstractWorkers, Forked, InProcess
from thunder.errors import OptionError, ReproducerError
from thunder.repro import Crashes, Differs, Expectation, Fails, Hangs, Verdict

NamedCheck = Literal["error", "accuracy"]
Check = NamedCheck | UserCheck
_WORKERS = 2
_START_SECONDS = 20.0
"""What starting torch may take: a script that hangs does so for longer."""
_UNCONFIRMED = "not confirmed: it failed in a process that had run other pieces before"


@dataclass(frozen=True, kw_only=True, slots=True)
class MinimizeResult:
    """What is left of a graph.

    Attributes:
        graph_module: The smallest graph found that fails as the whole does.
        inputs: Its inputs.
        failure: What it does: the head of the error, or the verdict on its results.
        nodes_before: Number of nodes of the whole graph, inputs and output included.
        nodes_after: Number of nodes of `graph_module`.
        queries: How many pieces were tried.
        seconds: How long the search took, without running the script.
        script: The script that shows the failure; None where none was written.
        verdict: What running the script in a fresh process showed; None when there is none.
        interrupted: Whether Ctrl-C ended the search.
        confirmed: Whether the graph failed in a worker that had run nothing else.
    """

    graph_module: fx.GraphModule
    inputs: tuple[Any, ...]
    failure: str
    nodes_before: int
    nodes_after: int
    queries: int
    seconds: float
    script: Path | None = None
    verdict: Verdict | None = None
    interrupted: bool = False
    confirmed: bool = True

    def __str__(self) -> str:
        """A summary for a terminal."""
        head = f"{self.nodes_before} -> {self.nodes_after} nodes"
        lines = [f"{head} in {self.seconds:.1f} s, {self.queries} pieces tried", self.failure]
        if self.interrupted:
            lines.append("interrupted; this is the smallest so far")
        if not self.confirmed:
            lines.append(_UNCONFIRMED)
        if self.script is not None:
            lines.append(f"{self.script} ({self.verdict})")
        return "\n".join(lines)


def minimize(
    target: Any,
    *,
    check: Check | None = None,
    inputs: Sequence[Any] | None = None,
    compile_options: Mapping[str, Any] | None = None,
    folder: str | os.PathLike[str] | None = None,
    script: bool = True,
    progress: bool = True,
    timeout: float = 120.0,
) -> MinimizeResult:
    """Shrinks a graph that fails, or gives wrong results, when it is compiled.

    Pieces of the graph are compiled and run, forward and backward, in processes of their own,
    which are replaced when they crash. A piece counts only if it fails just as the whole: with
    the same exception and the same first line, with the same signal, or by inaccurate results.

    Args:
        target: The path of a reproducer script, a region out of
            `SubgraphInfo.thunder_compiled_fns`, or an fx `GraphModule`, of torch functions or of
            ATen operators.
        check: `"error"` or `"accuracy"`, or a function of a graph module and its inputs that
            says whether the failure is there. By default an error, if compiling or running the
            whole graph raises one or ends the process, and accuracy otherwise.
        inputs: Inputs to use instead of those recorded; needed for a `GraphModule`.
        compile_options: For a `GraphModule`: the keywords of `thunder.jit` to compile it with.
        folder: Where the script is written; by default beside the original script, or in the
            debug folder.
        script: Whether to write a script of the result, and to run it in a fresh process to see
            that it fails the same way. There is none for a check of the user's.
        progress: Whether to say on the standard error how far the search is.
        timeout: Seconds that one piece may take.

    Returns:
        The smallest graph found. Ctrl-C ends the search and returns the smallest so far, with its
        script. A second Ctrl-C ends the run of the script in a fresh process.

    Raises:
        KeyboardInterrupt: Ctrl-C came before there was a piece that fails.
        OptionError: `check` is none of these.
        ReproducerError: The target is nothing that can be minimized, or does not fail.

    Example:
        >>> import torch, thunder
        >>> from thunder.executors import OperatorExecutor
        >>> wrong = OperatorExecutor("wrong", {torch.ops.aten.sin: lambda x: x.sin() + 0.1})
        >>> graph = torch.fx.symbolic_trace(lambda x: x.exp().sin().tanh())
        >>> result = minimize(
        ...     graph,
        ...     inputs=[torch.ones(4)],
        ...     compile_options={"executors": [wrong, "aten"]},
        ...     check=lambda graph, inputs: "sin" in graph.code,
        ...     progress=False,
        ... )
        >>> [node.name for node in result.graph_module.graph.nodes]
        ['exp', 'sin', 'output']
    """
    if not (check is None or callable(check) or check in get_args(NamedCheck)):
        raise OptionError(
            f"check={check!r} is not accepted; use 'error', 'accuracy', or a function of a graph "
            "module and its inputs"
        )
    with contextlib.ExitStack() as stack:
        resolved = resolve_target(target, inputs, compile_options, stack)
        search = _Search(resolved, check, Display(on=progress), timeout)
        result = search.run()
        if callable(check) or not script:
            return result
        return _with_script(
            result, resolved, search.finding, Path(folder) if folder else None, timeout
        )


class _Search:
    """One search, from the whole graph to the smallest piece."""

    def __init__(
        self, target: Target, check: Check | None, display: Display, timeout: float
    ) -> None:
        self._target = target
        self._check = check
        self._display = display
        self._timeout = timeout
        with target.around():
            self._problem = Problem(target.graph_module, target.inputs)
        self._examination = Examination(
            problem=self._problem,
            compile=target.compile,
            around=target.around,
            user_check=check if callable(check) else None,
        )
        self._asked = 0
        self._searches: list[Shrinker] = []
        self._confirmed = False

    @property
    def finding(self) -> Finding:
        """What the smallest piece showed."""
        found = self._found
        return found.finding if found is not None else Finding(kind=Kind.PASSES)

    def run(self) -> MinimizeResult:
        started = time.monotonic()
        interrupted = False
        try:
            with self._display.shown(f"{self._problem.size} nodes, running the whole graph"):
                self._search()
        except KeyboardInterrupt:
            if self._found is None:
                raise
            interrupted = True
            self._display.say("interrupted, keeping the smallest so far; once more stops it")
        (graph_module, inputs), again = completed(self._build)
        return MinimizeResult(
            graph_module=graph_module,
            inputs=tuple(inputs),
            failure=self.finding.text or "meets the check",
            nodes_before=self._problem.size,
            nodes_after=len(graph_module.graph.nodes),
            queries=self._asked,
            seconds=time.monotonic() - started,
            interrupted=interrupted or again,
            confirmed=self._confirmed or self._found is not self._searches[0],
        )

    @property
    def _found(self) -> Shrinker | None:
        """The search that found a piece; a later one counts more, whose workers are fresh."""
        return next((one for one in reversed(self._searches) if one.best is not None), None)

    def _build(self) -> tuple[fx.GraphModule, list[Any]]:
        assert self._found is not None
        assert self._found.best is not None
        with self._target.around():
            return self._problem.build(self._found.best)

    def _search(self) -> None:
        piece = self._shrink(None)
        with self._workers(1) as workers:
            answer = workers.ask(Query(piece, self.finding.kind is Kind.INACCURATE))
        self._confirmed = answer.is_like(self.finding)
        if not self._confirmed and answer.kind is not Kind.UNANSWERED:
            # An earlier piece left something behind in its worker.
            self._shrink(1)

    def _shrink(self, answers_a_worker: int | None) -> Piece:
        with self._workers(answers_a_worker) as workers:
            try:
                named = {"error": False, "accuracy": True}
                accuracy = named[self._check] if isinstance(self._check, str) else None
                original = workers.ask(Query(None, accuracy))
                _require_failure(original, self._check)
                shrinker = Shrinker(self._problem, workers, original, self._show)
                self._searches.append(shrinker)
                shrinker.run()
            finally:
                self._asked += workers.asked
        if shrinker.best is None:
            raise ReproducerError(
                f"no piece of the graph fails as the whole does ({original.text}): the failure "
                "may need the form of its results, or come and go"
            )
        return shrinker.best

    def _workers(self, answers_a_worker: int | None) -> AbstractWorkers[Query]:
        answer = self._examination.answer
        if torch.cuda.is_initialized():
            return InProcess(answer)
        return Forked(
            answer,
            count=_WORKERS,
            timeout=self._timeout,
            answers_a_worker=answers_a_worker,
            say=self._display.say,
        )

    def _show(self, piece: Piece) -> None:
        self._display.say(f"{len(piece.operators)} operators, {len(piece.outputs)} results")


def _require_failure(original: Finding, check: str | UserCheck | None) -> None:
    errors = (Kind.FAILS, Kind.CRASHES, Kind.TIMES_OUT)
    kinds = (*errors, Kind.INACCURATE)
    if check is not None:
        named = {"error": errors, "accuracy": (Kind.INACCURATE,)}
        kinds = named[check] if isinstance(check, str) else (Kind.HOLDS,)
    if original.kind in kinds:
        return
    if original.kind is Kind.UNANSWERED:
        raise ReproducerError(
            f"the whole graph was not examined: {original.text}. End other threads that compile "
            "or show progress, and try again"
        )
    what = f"{original.kind.value}: {original.text}".removesuffix(": ")
    raise ReproducerError(
        f"the whole graph does not fail in the way that is looked for; it {what}. With other "
        "inputs or options it may: see inputs= and compile_options="
    )


def _expectation(finding: Finding, timeout: float) -> Expectation:
    match finding.kind:
        case Kind.FAILS:
            return Fails(finding.type_name, finding.message_head)
        case Kind.CRASHES:
            return Crashes(max(-finding.signal, 0))
        case Kind.TIMES_OUT:
            return Hangs(timeout + _START_SECONDS)
    return Differs()


def _with_script(
    result: MinimizeResult,
    target: Target,
    finding: Finding,
    folder: Path | None,
    timeout: float,
) -> MinimizeResult:
    wanted = folder or target.folder or debug_folder()
    if wanted is None:
        return result
    notes = (f"{result.nodes_before} -> {result.nodes_after} nodes",)
    path, verdict = write_minimal_script(
        title=f"The smallest part of {target.name} that fails as the whole does",
        graph_module=result.graph_module,
        inputs=result.inputs,
        source=target.source,
        expected=_expectation(finding, timeout),
        folder=wanted,
        stem=f"{target.name}_minimal",
        around=target.around,
        notes=notes if result.confirmed else (*notes, _UNCONFIRMED),
    )
    return dataclasses.replace(result, script=path, verdict=verdict)
