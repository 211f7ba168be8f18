"""What was set around a call when its graph was captured: modes, global settings, configuration.

Recorded because a graph does not show it: an autocast region that the caller entered, gradients
that are off, another default dtype, a changed setting of Inductor.
"""

from __future__ import annotations

import operator
import re
from dataclasses import dataclass
from typing import Any

import torch
from torch._dynamo import config as dynamo_config
from torch._functorch import config as functorch_config
from torch._inductor import config as inductor_config

_CONFIGS = {
    "torch._dynamo.config": dynamo_config,
    "torch._functorch.config": functorch_config,
    "torch._inductor.config": inductor_config,
}
_AUTOCAST_DEVICES = ("cpu", "cuda", "xpu", "mps")
_SET_WHILE_COMPILING = (
    "torch._dynamo.config.assume_static_by_default",
    "torch._functorch.config.fake_tensor_allow_unsafe_data_ptr_access",
    "torch._inductor.config.deterministic",  # follows torch.use_deterministic_algorithms
)
"""What Dynamo itself changes for the time of a compile, and what follows another setting."""

_PATH = re.compile(r"['\"]/|\\\\")


@dataclass(frozen=True, kw_only=True, slots=True)
class Surroundings:
    """Modes and settings that differ from torch's defaults.

    Attributes:
        contexts: Context managers to call the graph in, as expressions.
        settings: Statements that make the global settings.
        imports: Import statements that the settings need.
        gradients: Whether gradients were recorded.
    """

    contexts: tuple[str, ...] = ()
    settings: tuple[str, ...] = ()
    imports: tuple[str, ...] = ()
    gradients: bool = True


def record_surroundings() -> Surroundings:
    """Records the modes and settings of this moment.

    Returns:
        The record. Settings that hold absolute paths are left out: they name this machine.

    Example:
        >>> import torch
        >>> with torch.autocast("cpu", dtype=torch.bfloat16):
        ...     record_surroundings().contexts
        ('torch.autocast("cpu", dtype=torch.bfloat16)',)
    """
    settings, imports = [], []
    if torch.get_default_dtype() is not torch.float32:
        settings.append(f"torch.set_default_dtype({torch.get_default_dtype()})")
    if (precision := torch.get_float32_matmul_precision()) != "highest":
        settings.append(f'torch.set_float32_matmul_precision("{precision}")')
    if torch.are_deterministic_algorithms_enabled():
        warn_only = torch.is_deterministic_algorithms_warn_only_enabled()
        settings.append(f"torch.use_deterministic_algorithms(True, warn_only={warn_only})")
    for name, config in _CONFIGS.items():
        lines = config.codegen_config().splitlines()
        changed = [line for line in lines if _is_worth(line, name, config)]
        settings += changed
        imports += [f"import {name}"] if changed else []
    return Surroundings(
        contexts=tuple(_contexts()),
        settings=tuple(settings),
        imports=tuple(imports),
        gradients=torch.is_grad_enabled(),
    )


def _is_worth(line: str, config_name: str, config: Any) -> bool:
    """Whether a line changes something, and that not for the time of this compile only."""
    name = line.partition(" = ")[0]
    if _PATH.search(line) or name in _SET_WHILE_COMPILING:
        return False
    key = name.removeprefix(f"{config_name}.")
    entry = config._config.get(key)  # a setting that was changed and put back is listed, too
    return entry is None or entry.default != operator.attrgetter(key)(config)


def _contexts() -> list[str]:
    contexts = []
    if torch.is_inference_mode_enabled():
        contexts.append("torch.inference_mode()")
    elif not torch.is_grad_enabled():
        contexts.append("torch.no_grad()")
    for device in _AUTOCAST_DEVICES:
        if torch.is_autocast_enabled(device):
            dtype = torch.get_autocast_dtype(device)
            cache = "" if torch.is_autocast_cache_enabled() else ", cache_enabled=False"
            contexts.append(f'torch.autocast("{device}", dtype={dtype}{cache})')
    return contexts
