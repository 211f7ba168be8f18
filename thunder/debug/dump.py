"""Artifacts: one file for each kind, graph and process of the run, in the debug folder.

Writing artifacts never breaks a run: what cannot be made or written is warned about once, through
logging. Nothing goes to standard output. What artifacts contain is for the callers to know.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from pathlib import Path
from typing import final

from thunder.debug.activation import enabled
from thunder.debug.flags import DebugFlag
from thunder.debug.folder import attempt, unique_name
from thunder.debug.log import warn_once
from thunder.debug.structured import log_artifact


@final
class GraphDump:
    """The artifacts of one graph.

    Two callables of a program both have a `graph0`. Each object gets a name of its own when it
    first needs one: `graph0`, `graph0-2` and so on.

    Example:
        >>> from thunder.debug import DebugFlag, GraphDump, active
        >>> graph = GraphDump("example")
        >>> with active(DebugFlag.TRACE):
        ...     path = graph.artifact(DebugFlag.TRACE, lambda: "x = 1", direction="forward")
        >>> path.name
        'example_forward_trace_rank0.py'
        >>> path.read_text()
        'x = 1'
    """

    def __init__(self, graph: str) -> None:
        """Makes nothing yet.

        Args:
            graph: The graph's name within its callable.
        """
        self._graph = graph

    @functools.cached_property
    def name(self) -> str:
        """The graph's name within the process."""
        return unique_name(self._graph)

    def artifact(
        self,
        flag: DebugFlag,
        text: Callable[[], str],
        *,
        direction: str = "",
        part: str = "",
        kind: str = "",
        extension: str = "py",
    ) -> Path | None:
        """Shows an artifact to whoever wants it: the folder, and torch's structured log.

        Args:
            flag: The flag under which a file is written.
            text: Makes the text; called only when somebody wants it.
            direction: Which of the graph's programs it is of, such as `"forward"`.
            part: A part of the graph, such as `"inductorFusion0"`.
            kind: What it is; by default the flag's name.
            extension: The file name's last part.

        Returns:
            The file, or None when none was written.
        """
        kind = kind or flag.key.lower()
        label = "_".join(filter(None, (self._graph, part, direction, kind)))
        made = _made_once(text, label)
        log_artifact(label, made)
        if not enabled(flag):
            return None
        content = made()
        if content is None:
            return None
        graph = f"{self.name}_{part}" if part else self.name
        return write(kind, content, graph=graph, direction=direction, extension=extension)


def write(
    kind: str,
    content: str | bytes,
    *,
    graph: str = "",
    direction: str = "",
    extension: str = "py",
) -> Path | None:
    """Writes a file into the debug folder, whatever the flags; one of the same name is replaced.

    Args:
        kind: What it is, such as `"reproducer"`.
        content: Text, written as UTF-8, or bytes.
        graph: Which graph it is of; `GraphDump.name` is unique in the process.
        direction: Which of the graph's programs it is of.
        extension: The file name's last part.

    Returns:
        The file, or None when it could not be written.

    Example:
        >>> from thunder.debug import write
        >>> write("notes", "hello", extension="txt").name
        'notes_rank0.txt'
    """
    data = content.encode(errors="backslashreplace") if isinstance(content, str) else content
    return attempt(lambda folder: folder.write(kind, graph, direction, data, extension))


def remove(path: Path) -> None:
    """Removes a file that `write` wrote; one that cannot be removed is warned about once.

    Args:
        path: What `write` returned.
    """
    attempt(lambda folder: folder.remove(path))


def debug_folder() -> Path | None:
    """Returns the debug folder, made when missing; None when there can be none."""
    return attempt(lambda folder: folder.path)


def subfolder(kind: str) -> Path | None:
    """Makes a folder of this process inside the debug folder, for somebody else's files.

    Args:
        kind: What the files are, such as `"torch"`.

    Returns:
        The folder, or None when it could not be made.
    """
    return attempt(lambda folder: folder.subfolder(kind))


def _made_once(text: Callable[[], str], label: str) -> Callable[[], str | None]:
    @functools.cache
    def made() -> str | None:
        try:
            return text()
        except Exception as error:  # noqa: BLE001 - a fence: showing must not break the run
            warn_once(
                ("artifact", label),
                f"the artifact {label} could not be made ({type(error).__name__}: {error}); "
                "the run goes on without it",
                error=error,
            )
            return None

    return made
