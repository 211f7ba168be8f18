"""A folder held open, in which files are written whole or not at all.

Everything goes through the folder's file descriptor, so that nobody who renames or plants links
in the path afterwards redirects what is written: a link in the place of a file is replaced, a
link in the place of a folder is an error. New files and folders have the user's umask.
Every method raises OSError; what to do about it is for the caller to decide.
"""

from __future__ import annotations

import errno
import fcntl
import os
import secrets
import stat
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import final

_NO_LINK = os.O_NOFOLLOW | os.O_CLOEXEC
_LOCK_PATIENCE = 2.0


@final
class Directory:
    """An open folder.

    Attributes:
        path: Where it was when it was opened.
    """

    def __init__(self, path: Path, descriptor: int) -> None:
        """Takes over a descriptor; `create` and `create_below` are what callers use.

        Args:
            path: Where it is.
            descriptor: The open folder; closed with this object.
        """
        self.path = path
        self._descriptor = descriptor

    @classmethod
    def create(cls, path: Path) -> Directory:
        """Opens a folder that the user named, and makes it and its parents when missing.

        Args:
            path: The folder. It may be a link of the user's own.

        Raises:
            OSError: It cannot be made, or is a link that another user made.
        """
        path = path.absolute()
        if path.is_symlink() and path.lstat().st_uid not in (0, os.geteuid()):
            raise PermissionError(errno.EPERM, "a link that another user made", str(path))
        path = Path(os.path.realpath(path))  # Path.resolve does not raise OSError for all it meets
        path.mkdir(parents=True, exist_ok=True)
        return cls(path, os.open(path, os.O_RDONLY | os.O_DIRECTORY | _NO_LINK))

    def create_below(self, name: str) -> Directory:
        """Opens a folder inside this one, and makes it when missing.

        Args:
            name: Its name, a single component.

        Raises:
            OSError: It cannot be made, or something that is no folder has its name.
        """
        with suppress(FileExistsError):
            os.mkdir(name, dir_fd=self._descriptor)
        flags = os.O_RDONLY | os.O_DIRECTORY | _NO_LINK
        return Directory(self.path / name, os.open(name, flags, dir_fd=self._descriptor))

    def exists(self) -> bool:
        """Whether the folder is still there, at the place where it was opened."""
        try:
            return os.path.samestat(os.fstat(self._descriptor), self.path.lstat())
        except OSError:
            return False

    def write(self, name: str, content: bytes) -> Path:
        """Writes a file whole: readers see the old one or the new one.

        Args:
            name: Its name, a single component.
            content: Its bytes.

        Returns:
            Where it is.

        Raises:
            OSError: It could not be written; an older one is as it was.
        """
        temporary = f".{secrets.token_hex(8)}.tmp"
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | _NO_LINK
        descriptor = os.open(temporary, flags, 0o666, dir_fd=self._descriptor)
        try:
            with os.fdopen(descriptor, "wb") as file:
                file.write(content)
            os.rename(temporary, name, src_dir_fd=self._descriptor, dst_dir_fd=self._descriptor)
        except BaseException:
            with suppress(OSError):
                os.unlink(temporary, dir_fd=self._descriptor)
            raise
        return self.path / name

    def remove(self, name: str) -> None:
        """Removes a file.

        Args:
            name: Its name, a single component.

        Raises:
            OSError: It is not there, or may not be removed.
        """
        os.unlink(name, dir_fd=self._descriptor)

    def open_to_append(self, name: str) -> int:
        """Opens a file for reading and appending, and makes it when missing.

        Args:
            name: Its name, a single component.

        Returns:
            A descriptor that the caller closes.

        Raises:
            OSError: It cannot be opened, or is no plain file of one name.
        """
        # Without O_NONBLOCK a planted pipe would block for ever.
        flags = os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_NONBLOCK | _NO_LINK
        descriptor = os.open(name, flags, 0o666, dir_fd=self._descriptor)
        status = os.fstat(descriptor)
        if not stat.S_ISREG(status.st_mode) or status.st_nlink > 1:
            os.close(descriptor)
            raise PermissionError(errno.EPERM, "not a plain file", str(self.path / name))
        return descriptor

    def claim(self, name: str) -> int | None:
        """Locks a file for as long as the process lives.

        Args:
            name: Its name, a single component.

        Returns:
            The descriptor that holds the lock, for the caller to close; None when another
            process has it. On a file system without locks nobody has any.

        Raises:
            OSError: The file cannot be opened.
        """
        descriptor = self.open_to_append(name)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(descriptor)
            return None
        except OSError:
            pass
        return descriptor

    def close(self) -> None:
        """Closes the descriptor."""
        os.close(self._descriptor)


@contextmanager
def locked(descriptor: int) -> Iterator[None]:
    """Holds an open file's lock for a `with` block.

    It is a courtesy between processes that all append whole lines. A holder that hangs, or a file
    system without locks, is no reason to hang or to fail: then it goes on without.

    Args:
        descriptor: An open file.
    """
    deadline = time.monotonic() + _LOCK_PATIENCE
    while True:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            break
        except BlockingIOError:
            if time.monotonic() > deadline:
                break
            time.sleep(0.005)
        except OSError:
            break
    try:
        yield
    finally:
        # Closing is not enough: a child that was forked meanwhile has the descriptor too.
        with suppress(OSError):
            fcntl.flock(descriptor, fcntl.LOCK_UN)
