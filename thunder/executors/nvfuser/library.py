"""The one place that imports `nvfuser_direct`, and says in words when that is not possible."""

from __future__ import annotations

import functools
import importlib
import importlib.util
import os
from types import ModuleType

import torch

from thunder.errors import ExecutorError
from thunder.executors.base import Refusal

MODULE = "nvfuser_direct"
LAUNCHER_VARIABLES = ("RANK", "OMPI_COMM_WORLD_RANK", "SLURM_PROCID")


@functools.cache
def available() -> Refusal | None:
    """Says whether fusions can run here; looked up once a process.

    Returns:
        None when they can, otherwise what is missing.

    Example:
        >>> refusal = available()
        >>> refusal is None or refusal.reason.startswith("nvFuser")
        True
    """
    if importlib.util.find_spec(MODULE) is None:
        return Refusal(
            "nvFuser is not installed: pip install the wheel that fits torch and CUDA, such as "
            "nvfuser-cu130-torch210"
        )
    if not torch.cuda.is_available():
        return Refusal("nvFuser needs a CUDA device and torch sees none")
    loaded = _load()
    if isinstance(loaded, Exception):
        return Refusal(f"nvFuser is installed but cannot be imported: {loaded}")
    return None


def load() -> ModuleType:
    """Returns the module `nvfuser_direct`.

    Raises:
        ExecutorError: It cannot be imported.
    """
    loaded = _load()
    if isinstance(loaded, Exception):
        raise ExecutorError(f"nvFuser cannot be imported: {loaded}") from loaded
    return loaded


@functools.cache
def _load() -> ModuleType | Exception:
    if any(variable in os.environ for variable in LAUNCHER_VARIABLES):
        # Under a launcher nvFuser would open a communicator of its own, which nothing here uses.
        disabled = {option for option in os.environ.get("NVFUSER_DISABLE", "").split(",") if option}
        os.environ["NVFUSER_DISABLE"] = ",".join(sorted(disabled | {"multidevice"}))
    try:
        return importlib.import_module(MODULE)
    except Exception as error:  # noqa: BLE001 - a broken wheel fails in many ways; kept and told
        return error
