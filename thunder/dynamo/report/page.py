"""The page about a program as data: what is shown and what belongs together, not how it looks.

Source lines, fusions and kernels have numbers that hold for the whole page; each line of a listing
says by them what it belongs to. Everything is frozen text and numbers.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from thunder.dynamo.report.kernel_code import Language

NOTHING = -1
"""The number of no source line, no fusion."""


@dataclass(frozen=True, kw_only=True, slots=True)
class PageSource:
    """A line of the user's program, as the traces cite it.

    Attributes:
        file: Its file.
        line: Its number there.
        function: The function around it.
        code: Its text.
    """

    file: str
    line: int
    function: str
    code: str


@dataclass(frozen=True, kw_only=True, slots=True)
class PageNote:
    """Something said about a program or a part of it.

    Attributes:
        label: What kind of thing, such as `break` or `split`.
        text: One sentence.
        details: More of them.
        source: Number of the source line it is about.
    """

    label: str
    text: str
    details: tuple[str, ...] = ()
    source: int = NOTHING


@dataclass(frozen=True, kw_only=True, slots=True)
class PageLine:
    """A line of a trace or of generated code.

    Attributes:
        text: The line.
        source: Number of the source line that it comes from.
        fusion: Number of the fusion that it is in or calls.
        kernels: Numbers of the kernels that compute it, or that it is of.
        is_head: Whether it stands for the fusion as a whole.
        language: What it is written in.
    """

    text: str
    source: int = NOTHING
    fusion: int = NOTHING
    kernels: tuple[int, ...] = ()
    is_head: bool = False
    language: Language = Language.PYTHON


@dataclass(frozen=True, kw_only=True, slots=True)
class PageListing:
    """A trace, or the code of a fusion.

    Attributes:
        title: What it is.
        lines: Its lines.
        fusion: Number of the fusion whose code it is.
    """

    title: str
    lines: tuple[PageLine, ...]
    fusion: int = NOTHING


@dataclass(frozen=True, kw_only=True, slots=True)
class PageBar:
    """One contestant's time.

    Attributes:
        name: Who.
        seconds: Median time of a call; None when it was not timed.
        is_subject: Whether the report is about it.
        words: Its result in one line.
    """

    name: str
    seconds: float | None
    is_subject: bool
    words: str


@dataclass(frozen=True, kw_only=True, slots=True)
class PageTiming:
    """What benchmarking a region showed.

    Attributes:
        finding: What it has to be looked at for, or nothing.
        is_bad: Whether that is a problem.
        ratio: The time over the baseline's, with its interval; empty when not compared.
        bars: One for each contestant.
        scripts: The scripts that show it.
        failure: Why there is nothing else; empty otherwise.
    """

    finding: str
    is_bad: bool
    ratio: str
    bars: tuple[PageBar, ...]
    scripts: tuple[str, ...] = ()
    failure: str = ""


@dataclass(frozen=True, kw_only=True, slots=True)
class PageKernel:
    """A call of a generated kernel.

    Attributes:
        number: Its number on the page.
        name: Its name.
        nodes: How many ATen nodes it computes; 0 when nothing tells.
    """

    number: int
    name: str
    nodes: int


@dataclass(frozen=True, kw_only=True, slots=True)
class PageRegion:
    """A graph, segment or fusion.

    Attributes:
        name: Its name, as in scripts and records.
        title: What it is called under what it is a part of.
        kind: `"graph"`, `"segment"` or `"fusion"`.
        summary: Sizes in words.
        notes: What is said about it.
        listings: Its traces; of a fusion, its code.
        parts: The regions in it.
        kernels: Of a fusion, the kernels that it calls.
        fusion: Of a fusion, its number.
        timing: What benchmarking showed.
    """

    name: str
    title: str
    kind: str
    summary: str
    notes: tuple[PageNote, ...] = ()
    listings: tuple[PageListing, ...] = ()
    parts: tuple[PageRegion, ...] = ()
    kernels: tuple[PageKernel, ...] = ()
    fusion: int = NOTHING
    timing: PageTiming | None = None


@dataclass(frozen=True, kw_only=True, slots=True)
class Page:
    """Everything on a page.

    Attributes:
        program: The program's name.
        notes: Why Dynamo broke it into graphs.
        regions: The graphs.
        sources: The source lines, by number.
        environment: Versions and devices: name and value.
    """

    program: str
    notes: tuple[PageNote, ...]
    regions: tuple[PageRegion, ...]
    sources: tuple[PageSource, ...] = ()
    environment: tuple[tuple[str, str], ...] = field(default=())
