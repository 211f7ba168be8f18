"""Which process of a run this is."""

from __future__ import annotations

import os

import torch.distributed
from torch.utils.data import get_worker_info


def rank() -> int:
    """Returns this process's rank: torch.distributed's, else that of the launcher's `RANK`, or 0.

    Example:
        >>> from thunder.debug.process import rank
        >>> rank()
        0
    """
    if torch.distributed.is_available() and torch.distributed.is_initialized():
        return torch.distributed.get_rank()
    text = os.environ.get("RANK", "")
    return int(text) if text.isascii() and text.isdecimal() else 0


def process_label() -> str:
    """Returns the part of a file name that keeps the processes of a run apart.

    Example:
        >>> from thunder.debug.process import process_label
        >>> process_label()
        'rank0'
    """
    worker = get_worker_info()
    return f"rank{rank()}" if worker is None else f"rank{rank()}-worker{worker.id}"
