"""Writes the files of this package: whole or not at all, and never through a planted link."""

from __future__ import annotations

import contextlib
import errno
import os
import secrets
from collections.abc import Callable
from pathlib import Path
from typing import BinaryIO

from thunder.errors import ReproducerError

_ADVICE = {
    errno.ENOSPC: "free some space, or choose a folder on another disk",
    errno.EDQUOT: "free some space, or choose a folder on another disk",
    errno.EROFS: "the file system is read-only; choose another folder",
    errno.EACCES: "choose a folder that you may write to",
    errno.EPERM: "choose a folder that you may write to",
    errno.ENOTDIR: "a part of the path is a file; choose another folder",
    errno.EEXIST: "a part of the path is a file; choose another folder",
    errno.ENAMETOOLONG: "choose a shorter name",
}


def write_text(path: str | os.PathLike[str], text: str) -> Path:
    """Writes a text file in UTF-8, in place of an older one.

    Args:
        path: The file. Its folder is made when it is missing.
        text: What to write.

    Returns:
        The path.

    Raises:
        ReproducerError: It could not be written; says why and what to do. Nothing is left behind.

    Example:
        >>> import tempfile
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     write_text(f"{folder}/new/hello.txt", "hello").read_text()
        'hello'
    """
    return write_file(path, lambda file: file.write(text.encode("utf-8")))


def write_file(path: str | os.PathLike[str], write: Callable[[BinaryIO], object]) -> Path:
    """Writes a file in place of an older one.

    The content goes to a new file beside it, which then takes its name. A symbolic link under
    that name is replaced, not followed.

    Args:
        path: The file. Its folder is made when it is missing.
        write: Writes the content to an open binary file.

    Returns:
        The path.

    Raises:
        ReproducerError: It could not be written; says why and what to do. Nothing is left behind.
    """
    target = Path(path)
    make_folder(target.parent)
    temporary = target.with_name(f".{target.name[:80]}.{secrets.token_hex(4)}.partial")
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | getattr(os, "O_NOFOLLOW", 0)
    try:
        if target.is_dir():
            raise IsADirectoryError(errno.EISDIR, "Is a directory", str(target))
        with os.fdopen(os.open(temporary, flags, 0o666), "wb") as file:
            write(file)
        temporary.replace(target)
    except BaseException as error:
        with contextlib.suppress(OSError):
            temporary.unlink(missing_ok=True)
        if isinstance(error, OSError):
            raise _explained(target, error) from error
        if isinstance(error, RuntimeError) and isinstance(error.__context__, OSError):
            raise _explained(target, error.__context__) from error  # torch.save hides the cause
        raise
    return target


def make_folder(path: str | os.PathLike[str]) -> Path:
    """Makes a folder and those above it, unless it is there.

    Args:
        path: The folder.

    Returns:
        The path.

    Raises:
        ReproducerError: It cannot be made, or is a file, or leads through a link that another
            user made.
    """
    folder = Path(path)
    try:
        for part in (folder, *folder.parents):
            if part.is_symlink() and part.lstat().st_uid not in (0, os.geteuid()):
                raise PermissionError(errno.EPERM, "a link that another user made", str(part))
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise _explained(folder, error) from error
    return folder


def _explained(path: Path, error: OSError) -> ReproducerError:
    reason = error.strerror or str(error)
    advice = _ADVICE.get(error.errno or 0, "choose another folder")
    return ReproducerError(f"cannot write {path}: {reason}. What to do: {advice}")
