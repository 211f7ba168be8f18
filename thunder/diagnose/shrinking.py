"""Finds a small piece that still fails as the whole does.

Delta debugging (A. Zeller, R. Hildebrandt, Simplifying and Isolating Failure-Inducing Input, IEEE
TSE 2002) over the operators, then over the results. What makes it quick for a single wrong
operator: a piece gets real values as inputs, so either half of a graph can be tried alone; and
where results are judged, one run of the piece with all results as outputs says where to look.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import final

from thunder.diagnose.examination import Query
from thunder.diagnose.finding import Finding, Kind
from thunder.diagnose.problem import Piece, Problem
from thunder.diagnose.workers import AbstractWorkers


@final
class Shrinker:
    """Shrinks a problem.

    Attributes:
        best: The smallest piece so far that fails as the whole does; None before the first.
        finding: What that piece showed.
    """

    def __init__(
        self,
        problem: Problem,
        workers: AbstractWorkers[Query],
        original: Finding,
        on_smaller: Callable[[Piece], None],
    ) -> None:
        """Prepares the search.

        Args:
            problem: What is shrunk.
            workers: They examine pieces.
            original: What the whole graph does.
            on_smaller: Told each smaller piece.
        """
        self.best: Piece | None = None
        self.finding = original
        self._problem = problem
        self._workers = workers
        self._original = original
        self._on_smaller = on_smaller
        self._failed: set[Piece] = set()

    def run(self) -> None:
        """Shrinks until no operator and no result can be left out."""
        problem = self._problem
        everything = (*problem.removable, *problem.frame)
        self._follow_wrong_results(problem.piece(everything))
        start = self.best.operators if self.best else everything
        frame = set(problem.frame)
        self._reduce(
            [index for index in start if index not in frame],
            lambda chosen: problem.piece((*chosen, *problem.frame)),
        )
        if self.best is None and self._try([problem.piece(everything)]) is None:
            return  # else every operator matters
        assert self.best is not None
        if frame.intersection(self.best.operators):
            self._try([problem.piece(set(self.best.operators) - frame)])
        whole = self.best
        self._reduce(list(whole.outputs), lambda chosen: problem.with_outputs(whole, chosen))

    def _follow_wrong_results(self, whole: Piece) -> None:
        """Tries the operators alone whose results are the first to be wrong."""
        if not self._original.wrong_outputs:
            return
        exposed = self._problem.exposed(whole)
        finding = self._workers.ask(self._query(exposed))
        wrong = [exposed.outputs[index] for index in finding.wrong_outputs]
        self._try([self._problem.piece([index]) for index in wrong[:4]])

    def _reduce(self, items: list[int], make: Callable[[Sequence[int]], Piece]) -> None:
        """The ddmin algorithm: halves, then ever smaller parts and what is left without them."""
        parts = 2
        while len(items) >= 2:
            chunks = [
                items[len(items) * i // parts : len(items) * (i + 1) // parts] for i in range(parts)
            ]
            rests = [[i for i in items if i not in chunk] for chunk in chunks]
            choices = [*chunks, *(rests if parts > 2 else [])]
            found = self._try([make(choice) for choice in choices])
            if found is not None:
                remaining = set(self._now())
                items = [i for i in choices[found] if i in remaining]
                parts = 2 if found < len(chunks) else max(parts - 1, 2)
            elif parts < len(items):
                parts = min(2 * parts, len(items))
            else:
                return

    def _now(self) -> tuple[int, ...]:
        assert self.best is not None
        return (*self.best.operators, *self.best.outputs)

    def _try(self, pieces: Sequence[Piece]) -> int | None:
        """Takes the first of some pieces that is smaller and fails; returns its position."""
        new = [
            position
            for position, piece in enumerate(pieces)
            if piece.outputs and piece not in self._failed and self._is_smaller(piece)
        ]
        queries = [self._query(pieces[position]) for position in new]
        found = self._workers.first(queries, self._is_like_original)
        count = len(new) if found is None else found[0]
        self._failed |= {pieces[i] for i in new[:count]}
        if found is None:
            return None
        self.best, self.finding = pieces[new[found[0]]], found[1]
        self._on_smaller(self.best)
        return new[found[0]]

    def _query(self, piece: Piece) -> Query:
        return Query(piece, self._original.kind is Kind.INACCURATE)

    def _is_smaller(self, piece: Piece) -> bool:
        if self.best is None:
            return True
        size, least = ((len(p.operators), len(p.outputs)) for p in (piece, self.best))
        return size < least

    def _is_like_original(self, finding: Finding) -> bool:
        return finding.is_like(self._original)
