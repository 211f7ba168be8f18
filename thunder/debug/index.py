"""The index of a debug folder: what each file in it is.

`index.jsonl` has a line for each file, appended by every process that writes into the folder;
`index.txt` shows the same as a table. Neither holds dates or process ids, so that the folders of
two runs of one program are equal.
"""

from __future__ import annotations

import dataclasses
import json
import os
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, final

from thunder.debug.directory import Directory, locked

LINES = "index.jsonl"
TABLE = "index.txt"
_REMOVED = "removed"
_TITLE = """What thunder wrote into this folder. index.jsonl has the same as JSON lines.
The .lock files keep processes that write here at the same time apart; they can be deleted
when none is running.
"""


@dataclass(frozen=True, kw_only=True, slots=True)
class Entry:
    """One artifact.

    Attributes:
        file: Its name in the folder.
        kind: What it is, such as `trace`.
        graph: Which graph it is of; empty when of none.
        direction: Which of the graph's programs it is of, such as `forward`; empty when of none.
        process: Which process of the run wrote it, such as `rank0`.
    """

    file: str
    kind: str
    graph: str = ""
    direction: str = ""
    process: str = ""


COLUMNS = tuple(field.name for field in dataclasses.fields(Entry))


@final
class Index:
    """The index of one folder. Threads take turns outside; processes take turns here."""

    def __init__(self, directory: Directory) -> None:
        """Opens the index.

        Args:
            directory: The folder.
        """
        self._directory = directory
        self._entries: dict[str, Entry] = {}
        self._read = 0  # bytes of index.jsonl that are in _entries

    def add(self, entry: Entry) -> None:
        """Says what a file is; says nothing when the index says so already.

        Args:
            entry: The file; replaces an older entry for the same file.

        Raises:
            OSError: The index cannot be written.
        """
        if self._entries.get(entry.file) == entry and self._directory_has_index():
            return
        self._append(dataclasses.asdict(entry))

    def remove(self, file: str) -> None:
        """Says that a file is gone.

        Args:
            file: Its name in the folder.

        Raises:
            OSError: The index cannot be written.
        """
        self._append({_REMOVED: file})

    def _append(self, fields: Mapping[str, str]) -> None:
        descriptor = self._directory.open_to_append(LINES)
        try:
            with locked(descriptor):
                torn = self._catch_up(descriptor)
                line = json.dumps(fields).encode() + b"\n"
                _write_all(descriptor, b"\n" * torn + line)
                self._catch_up(descriptor)
                self._directory.write(TABLE, self._table().encode())
        finally:
            os.close(descriptor)

    def _directory_has_index(self) -> bool:
        return (self._directory.path / LINES).exists()

    def _catch_up(self, descriptor: int) -> bool:
        """Reads what was appended; returns whether the last line was left unfinished."""
        size = os.fstat(descriptor).st_size
        if size < self._read:  # somebody emptied it
            self._entries, self._read = {}, 0
        text = os.pread(descriptor, size - self._read, self._read)
        whole, newline, rest = text.rpartition(b"\n")
        self._read += len(whole) + len(newline)
        for line in whole.splitlines():
            entry = _parse(line)
            if isinstance(entry, Entry):
                self._entries[entry.file] = entry
            elif entry is not None:
                self._entries.pop(entry, None)
        return bool(rest)

    def _table(self) -> str:
        entries = sorted(self._entries.values(), key=lambda entry: entry.file)
        rows = [COLUMNS, *(dataclasses.astuple(entry) for entry in entries)]
        widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
        lines = [
            "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip()
            for row in rows
        ]
        return "\n".join([_TITLE, *lines, ""])


def _parse(line: bytes) -> Entry | str | None:
    """Reads a line: an entry, the name of a removed file; None for what is torn or not ours."""
    try:
        fields: Any = json.loads(line)
    except ValueError:
        return None
    if not isinstance(fields, dict):
        return None
    if not all(isinstance(value, str) and value.isprintable() for value in fields.values()):
        return None
    if set(fields) == {_REMOVED}:
        return fields[_REMOVED]
    return Entry(**fields) if set(fields) == set(COLUMNS) else None


def _write_all(descriptor: int, content: bytes) -> None:
    while content:  # a full disk shows as a short write first
        content = content[os.write(descriptor, content) :]
