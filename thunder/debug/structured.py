"""The adapter to torch's structured log, which `tlparse` reads."""

from __future__ import annotations

import logging
import os
from collections.abc import Callable
from pathlib import Path
from typing import TextIO, final

from torch._logging._internal import TorchLogsFormatter, trace_log, trace_structured

from thunder.debug.log import warn_once


def log_artifact(name: str, text: Callable[[], str | None]) -> None:
    """Hands an artifact to torch's structured log, under the compile in progress.

    Args:
        name: What tlparse shows it as.
        text: Makes the text; called only when torch writes that log (`TORCH_TRACE=folder`).
    """
    trace_structured(
        "artifact",
        metadata_fn=lambda: {"name": f"thunder_{name}", "encoding": "string"},
        payload_fn=text,
        # A backward graph may be compiled outside any frame; torch would add a stack for that.
        expect_trace_id=False,
    )


@final
class StructuredLogFile(logging.Handler):
    """Copies torch's structured log into a file that tlparse can read.

    A file that cannot be written is warned about once; it never breaks a compile.
    """

    def __init__(self, folder: Callable[[], Path | None]) -> None:
        """Opens nothing yet.

        Args:
            folder: Makes the folder of this process; called at the first record.
        """
        super().__init__()
        self.setFormatter(TorchLogsFormatter(trace=True))
        self._folder = folder
        self._file: TextIO | None = None
        self._process = 0

    def follow(self) -> None:
        """Starts to listen, unless some other file of this kind does."""
        if not is_followed():
            trace_log.addHandler(self)

    def emit(self, record: logging.LogRecord) -> None:
        """Writes one record."""
        try:
            file = self._open()
            if file is not None:
                file.write(self.format(record) + "\n")
                file.flush()
        except OSError as error:
            warn_once(
                ("structured log", error.errno),
                f"torch's structured log could not be copied into the debug folder ({error})",
                error=error,
            )

    def close(self) -> None:
        """Stops listening and closes the file."""
        trace_log.removeHandler(self)
        file, self._file = self._file, None
        if file is not None and self._process == os.getpid():
            file.close()
        super().close()

    def _open(self) -> TextIO | None:
        if self._file is None or self._process != os.getpid():
            self._process = os.getpid()
            folder = self._folder()
            if folder is None:
                return None
            flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_NOFOLLOW
            descriptor = os.open(folder / "structured_trace.log", flags, 0o666)
            self._file = os.fdopen(descriptor, "a", encoding="utf-8")
        return self._file


def is_followed() -> bool:
    """Tells whether the structured log is being copied into the debug folder."""
    return any(isinstance(handler, StructuredLogFile) for handler in trace_log.handlers)
