"""The debug folder of this process: where it is, what files in it are called, and its index.

It is made at the first write: `THUNDER_DEBUG_DIR`, or a folder of this process's own below the
working directory, or, when that cannot be used, a temporary one. What goes in is `dump`'s matter.
"""

from __future__ import annotations

import hashlib
import os
import re
import tempfile
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import TypeVar, final

from thunder.debug.directory import Directory
from thunder.debug.index import Entry, Index
from thunder.debug.log import warn_once
from thunder.debug.process import process_label
from thunder.debug.variables import DEBUG_DIR

DEFAULT_ROOT = "thunder_debug"
_LONGEST_PART = 64
_LONGEST_EXTENSION = 16

Result = TypeVar("Result")


@final
class DebugFolder:
    """A folder with an index, shared with the other processes of the run.

    Attributes:
        path: Where it is.
    """

    def __init__(self, directory: Directory) -> None:
        """Starts to use a folder.

        Args:
            directory: The folder; closed with this object.

        Raises:
            OSError: Nothing can be written there.
        """
        self.path = directory.path
        self._directory = directory
        self._index = Index(directory)
        self._claims: dict[str, tuple[str, int]] = {}
        self._process()

    def write(self, kind: str, graph: str, direction: str, content: bytes, extension: str) -> Path:
        """Writes a file and says in the index what it is.

        Args:
            kind: What it is.
            graph: Which graph it is of, or empty.
            direction: Which of the graph's programs it is of, or empty.
            content: Its bytes.
            extension: The file name's last part.

        Returns:
            Where it is.

        Raises:
            OSError: The file cannot be written. An index that cannot is only warned about.
        """
        process = self._process()
        kind, graph, direction = plain(kind), plain(graph), plain(direction)
        stem = "_".join(filter(None, (graph, direction, kind, process)))
        path = self._directory.write(f"{stem}.{plain(extension)[:_LONGEST_EXTENSION]}", content)
        self._note(
            Entry(file=path.name, kind=kind, graph=graph, direction=direction, process=process)
        )
        return path

    def remove(self, path: Path) -> None:
        """Removes a file that `write` wrote, and takes it out of the index.

        Args:
            path: The file. One that is elsewhere, or gone, is passed over.

        Raises:
            OSError: It may not be removed.
        """
        if path.parent != self.path:
            return
        with suppress(FileNotFoundError):
            self._directory.remove(path.name)
        try:
            self._index.remove(path.name)
        except OSError as error:
            self._warn_of_index(error)

    def subfolder(self, kind: str) -> Path:
        """Makes a folder of this process for somebody else's files.

        Args:
            kind: What the files are.

        Returns:
            Where it is.

        Raises:
            OSError: It cannot be made.
        """
        process = self._process()
        kind = plain(kind)
        inner = self._directory.create_below(f"{kind}_{process}")
        inner.close()
        self._note(Entry(file=f"{inner.path.name}/", kind=kind, process=process))
        return inner.path

    def exists(self) -> bool:
        """Whether it is still where it was made."""
        return self._directory.exists()

    def close(self) -> None:
        """Lets go of the folder and of this process's names in it."""
        for _, descriptor in self._claims.values():
            os.close(descriptor)
        self._claims.clear()
        self._directory.close()

    def _note(self, entry: Entry) -> None:
        try:
            self._index.add(entry)
        except OSError as error:  # the file itself is there
            self._warn_of_index(error)

    def _warn_of_index(self, error: OSError) -> None:
        warn_once(
            ("debug index", self.path, error.errno),
            f"the index of {self.path} could not be written ({error}); the files are complete",
            error=error,
        )

    def _process(self) -> str:
        """Returns this process's label, which no other process that writes here has now.

        Two programs that were started with the same `THUNDER_DEBUG_DIR`, and the children of a
        process, may all be rank 0; the later ones become `rank0-2` and so on. A program that is
        run again finds its old label free, and replaces its files.
        """
        label = process_label()
        if label not in self._claims:
            count = 1
            while (descriptor := self._directory.claim(f".{_numbered(label, count)}.lock")) is None:
                count += 1
            self._claims[label] = (_numbered(label, count), descriptor)
        return self._claims[label][0]


@final
class _State:
    """The folders that this process uses, by the value of `THUNDER_DEBUG_DIR`."""

    def __init__(self) -> None:
        self.lock = threading.RLock()
        self.folders: dict[Path | None, DebugFolder] = {}
        self.names: set[str] = set()

    def folder(self) -> DebugFolder:
        wanted = DEBUG_DIR.read()
        found = self.folders.get(wanted)
        if found is not None and not found.exists():
            found.close()
            found = None
        if found is None:
            found = self.folders[wanted] = _open_folder(wanted)
        return found

    def close_all(self) -> None:
        for found in self.folders.values():
            found.close()
        self.folders.clear()


_state = _State()


def attempt(action: Callable[[DebugFolder], Result]) -> Result | None:
    """Does something with the debug folder; when that fails, warns once and goes on.

    Args:
        action: What to do; one thread at a time.

    Returns:
        What the action returned, or None when it failed.
    """
    try:
        with _state.lock:
            return action(_state.folder())
    except OSError as error:
        warn_once(
            ("debug folder", error.errno),
            f"debug output could not be written ({error}); the run goes on without it",
            error=error,
        )
        return None


def unique_name(name: str) -> str:
    """Returns a name that nothing else in this process got: the name, or with a number.

    Args:
        name: The wanted name.
    """
    with _state.lock:
        count = 1
        while _numbered(name, count) in _state.names:
            count += 1
        _state.names.add(_numbered(name, count))
        return _numbered(name, count)


def reset() -> None:
    """Forgets folders and names, as if nothing had been written yet; for tests."""
    with _state.lock:
        _state.close_all()
        _state.names.clear()


def plain(text: str) -> str:
    """Returns text that can be part of a file name, whatever it was.

    Args:
        text: Any text.

    Example:
        >>> from thunder.debug.folder import plain
        >>> plain("../graph 0")
        '_graph_0'
    """
    safe = re.sub(r"[^A-Za-z0-9_.-]+", "_", text).lstrip(".")
    if len(safe) <= _LONGEST_PART:
        return safe
    digest = hashlib.sha256(text.encode(errors="backslashreplace")).hexdigest()[:8]
    return f"{safe[: _LONGEST_PART - 9]}-{digest}"


def _numbered(name: str, count: int) -> str:
    return name if count == 1 else f"{name}-{count}"


def _open_folder(wanted: Path | None) -> DebugFolder:
    try:
        return DebugFolder(Directory.create(wanted) if wanted else _default_directory())
    except OSError as error:
        fallback = DebugFolder(Directory.create(Path(tempfile.mkdtemp(prefix="thunder_debug-"))))
        warn_once(
            ("debug folder", wanted),
            f"{wanted or DEFAULT_ROOT} cannot be used for debug output ({error}); it goes to "
            f"{fallback.path}. THUNDER_DEBUG_DIR=<folder> chooses another place",
            error=error,
        )
        return fallback


def _default_directory() -> Directory:
    here = Directory.create(Path.cwd())
    try:
        root = here.create_below(DEFAULT_ROOT)
    finally:
        here.close()
    try:
        return root.create_below(f"{time.strftime('%Y%m%d-%H%M%S')}-{os.getpid()}")
    finally:
        root.close()


def _after_fork() -> None:
    # The child has its own process id, hence its own folder or label; the lock may be held by a
    # thread that the child does not have.
    _state.lock = threading.RLock()
    _state.close_all()


os.register_at_fork(after_in_child=_after_fork)
