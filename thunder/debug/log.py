"""Logging: the logger `thunder` with a child for each module, and warnings said once.

Modules take `logging.getLogger(__name__)`. The package configures no handlers and no levels:
that is the application's, or `TORCH_LOGS="+thunder"`, which works with any module of the package.
"""

from __future__ import annotations

import logging
import warnings
from collections.abc import Hashable

LOGGER = logging.getLogger("thunder")
_said: dict[Hashable, object] = {}


def warn_once(
    key: Hashable,
    message: str,
    category: type[Warning] | None = None,
    *,
    error: BaseException | None = None,
    stacklevel: int = 2,
) -> bool:
    """Warns unless that was said before in this process.

    Args:
        key: What counts as the same warning.
        message: What happened, where, and what to do.
        category: Goes through `warnings`, which a program may turn into errors; None goes through
            logging, which never raises.
        error: The exception behind it, for the log's `exc_info` at level DEBUG.
        stacklevel: As in `warnings.warn`, counted from the caller.

    Returns:
        Whether it was said now.

    Example:
        >>> from thunder.debug import warn_once
        >>> key = ("no such folder", "data")
        >>> warn_once(key, "no folder data"), warn_once(key, "no folder data")
        (True, False)
    """
    token = object()
    if _said.setdefault(key, token) is not token:  # one atomic step, so that threads agree
        return False
    if category is None:
        LOGGER.warning(message)
    else:
        warnings.warn(message, category, stacklevel=stacklevel + 1)
    if error is not None:
        LOGGER.debug("the exception behind it", exc_info=error)
    return True
