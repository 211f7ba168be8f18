"""A page as what the browser's script reads: rows of a tree and of three panes, as plain data.

Listings are joined into one long pane of lines. Numbers of lines are columns of small integers, so
that 50,000 lines stay small and quick to read.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from thunder.benchmark.records import format_seconds
from thunder.dynamo.report.highlighting import highlight
from thunder.dynamo.report.page import (
    NOTHING,
    Page,
    PageLine,
    PageNote,
    PageRegion,
    PageSource,
    PageTiming,
)

_HEADING, _PLAIN, _HEAD = 2, 0, 1
_BODY = "    #    "
_OURS = "·"
"""Signs of the page's own, besides ASCII. They cannot be mistaken for anything else."""


@dataclass(slots=True)
class _Pane:
    """Lines of one pane, as columns."""

    lines: list[str] = field(default_factory=list)
    runs: list[str] = field(default_factory=list)
    numbers: list[int] = field(default_factory=list)
    sources: list[int] = field(default_factory=list)
    fusions: list[int] = field(default_factory=list)
    kernels: list[int] = field(default_factory=list)
    kinds: list[int] = field(default_factory=list)
    sets: dict[tuple[int, ...], int] = field(default_factory=lambda: {(): 0})

    def add_heading(self, title: str, fusion: int = NOTHING) -> None:
        """Adds the line above a listing."""
        self._add(PageLine(text=title, fusion=fusion), 0, _HEADING, "")

    def add(self, lines: Sequence[PageLine], numbers: Iterable[int]) -> None:
        """Adds the lines of a listing."""
        texts = [visible(line.text) for line in lines]
        bodies = list(map(_is_body, lines))
        shown = [t[len(_BODY) :] if b else t for b, t in zip(bodies, texts, strict=True)]
        runs = highlight(shown, [line.language for line in lines])
        runs = [f"c{len(_BODY)}{r}" if b else r for b, r in zip(bodies, runs, strict=True)]
        for line, number, run in zip(lines, numbers, runs, strict=True):
            self._add(line, number, _HEAD if line.is_head else _PLAIN, run)

    def _add(self, line: PageLine, number: int, kind: int, run: str) -> None:
        self.lines.append(visible(line.text))
        self.runs.append(run)
        self.numbers.append(number)
        self.sources.append(line.source)
        self.fusions.append(line.fusion)
        self.kernels.append(self.sets.setdefault(line.kernels, len(self.sets)))
        self.kinds.append(kind)

    def data(self) -> dict[str, Any]:
        """Returns the columns."""
        return {
            "text": "\n".join(self.lines),
            "runs": "\n".join(self.runs),
            "numbers": self.numbers,
            "sources": self.sources,
            "fusions": self.fusions,
            "kernels": self.kernels,
            "kinds": self.kinds,
            "sets": list(map(list, self.sets)),
        }


def _is_body(line: PageLine) -> bool:
    """Whether a line is of a fusion's body: traces show it as a comment, and it is code."""
    return line.fusion != NOTHING and line.text.startswith(_BODY)


def page_view(page: Page) -> dict[str, Any]:
    """Returns a page as plain data.

    Args:
        page: The page.
    """
    source, trace, code = _source_pane(page.sources), _Pane(), _Pane()
    starts: dict[int, int] = {}
    for region in _walk(page.regions):
        pane = code if region.kind == "fusion" else trace
        for listing in region.listings:
            starts.setdefault(id(region), len(pane.lines))
            pane.add_heading(listing.title, listing.fusion)
            pane.add(listing.lines, range(1, len(listing.lines) + 1))
    rows = [row for note in page.notes for row in _note_rows(note, 0)]
    slowest = max(filter(None, map(_longest, _walk(page.regions))), default=0.0)
    for region in page.regions:
        rows += _region_rows(region, 0, starts, slowest)
    return {
        "rows": rows,
        "panes": {"source": source.data(), "trace": trace.data(), "code": code.data()},
    }


def visible(text: str) -> str:
    """Makes text harmless to look at: one line of ASCII, the rest of it as escapes.

    Args:
        text: Anything; a character that hides or reorders others must not reach the screen.
    """
    expanded = text.expandtabs(4)
    if expanded.isascii() and expanded.isprintable():
        return expanded
    return "".join(
        c if c in _OURS or (c.isascii() and c.isprintable()) else _escape(c) for c in expanded
    )


def _escape(character: str) -> str:
    code = ord(character)
    width, letter = (2, "x") if code < 256 else (4, "u") if code < 65536 else (8, "U")
    return f"\\{letter}{code:0{width}x}"


def headline(page: Page) -> list[str]:
    """Returns how much there is of everything, in words.

    Args:
        page: The page.
    """
    regions = list(_walk(page.regions))
    lines = sum(len(listing.lines) for each in regions for listing in each.listings)
    counts = {
        "graph": len(page.regions),
        "graph break": sum(note.label == "break" for note in page.notes),
        "segment": sum(each.kind == "segment" for each in regions),
        "split": sum(note.label == "split" for each in regions for note in each.notes),
        "fusion": sum(each.kind == "fusion" for each in regions),
        "kernel call": sum(len(each.kernels) for each in regions),
        "line": lines,
    }
    return [f"{n:,} {noun}{'' if n == 1 else 's'}" for noun, n in counts.items() if n]


def _source_pane(sources: Sequence[PageSource]) -> _Pane:
    pane = _Pane()
    numbered = sorted(enumerate(sources), key=lambda item: (item[1].file, item[1].line, item[0]))
    files = dict.fromkeys(source.file for _, source in numbered)
    for file in files:
        of_file = [(number, each) for number, each in numbered if each.file == file]
        pane.add_heading(file)
        lines = [PageLine(text=each.code or "(no text)", source=n) for n, each in of_file]
        pane.add(lines, [each.line for _, each in of_file])
    return pane


def _walk(regions: Iterable[PageRegion]) -> Iterator[PageRegion]:
    for region in regions:
        yield region
        yield from _walk(region.parts)


def _longest(region: PageRegion) -> float:
    bars = region.timing.bars if region.timing else ()
    return max((bar.seconds for bar in bars if bar.seconds is not None), default=0.0)


def _row(depth: int, kind: str, title: str, words: str = "", **more: Any) -> dict[str, Any]:
    return {"depth": depth, "kind": kind, "title": visible(title), "words": visible(words), **more}


def _note_rows(note: PageNote, depth: int) -> Iterator[dict[str, Any]]:
    yield _row(depth, note.label, note.label, note.text, source=note.source)
    for detail in note.details:
        yield _row(depth + 1, "detail", "", detail, source=note.source)


def _region_rows(
    region: PageRegion, depth: int, starts: dict[int, int], slowest: float
) -> Iterator[dict[str, Any]]:
    more: dict[str, Any] = {"fusion": region.fusion}
    if id(region) in starts:
        more["line"] = starts[id(region)]
    if region.timing is not None:
        more["timing"] = _timing(region.timing, slowest)
    yield _row(depth, region.kind, region.title, region.summary, **more)
    timing = region.timing
    if timing is not None:
        said = [("failed", timing.failure)] if timing.failure else []
        said += [("script", script) for script in timing.scripts]
        for label, words in said:
            yield _row(depth + 1, label, label, words)
    for note in region.notes:
        yield from _note_rows(note, depth + 1)
    for part in region.parts:
        yield from _region_rows(part, depth + 1, starts, slowest)
    for kernel in region.kernels:
        nodes = f"{kernel.nodes} operator{'' if kernel.nodes == 1 else 's'}" if kernel.nodes else ""
        yield _row(
            depth + 1, "kernel", kernel.name, nodes, kernel=kernel.number, fusion=region.fusion
        )


def _timing(timing: PageTiming, slowest: float) -> dict[str, Any]:
    return {
        "finding": timing.finding,
        "bad": timing.is_bad,
        "ratio": visible(timing.ratio),
        "bars": [
            {
                "name": visible(bar.name),
                "time": "" if bar.seconds is None else format_seconds(bar.seconds),
                "share": 0.0
                if bar.seconds is None or not slowest
                else round(bar.seconds / slowest, 4),
                "subject": bar.is_subject,
                "words": visible(bar.words),
            }
            for bar in timing.bars
        ],
    }
