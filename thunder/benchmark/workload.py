"""What one timed call does, and on which devices one must wait for it."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any, final

import torch


@final
@dataclass(frozen=True, kw_only=True, slots=True)
class Workload:
    """A call that can be repeated.

    Attributes:
        function: What is timed. It takes no argument, or, with `prepare`, what that returns.
        prepare: What must happen before each call and is not timed, if anything.
        devices: Where the call's work is done, so that one can wait for it. Nothing needs to be
            waited for on the CPU.

    Example:
        >>> Workload(function=lambda: 1 + 1).run()
        2
    """

    function: Callable[..., Any]
    prepare: Callable[[], Any] | None = None
    devices: tuple[torch.device, ...] = ()

    def run(self) -> Any:
        """Does one call, untimed, and returns what it returns."""
        return self.function() if self.prepare is None else self.function(self.prepare())

    def synchronize(self) -> None:
        """Waits until all devices have done their work."""
        for device in self.devices:
            if device.type not in ("cpu", "meta"):
                torch.accelerator.synchronize(device)


def devices_of(values: Iterable[Any]) -> tuple[torch.device, ...]:
    """Returns the devices of the tensors among some values, sorted by name.

    Example:
        >>> devices_of([torch.ones(2), 3, "x"])
        (device(type='cpu'),)
    """
    devices = {value.device for value in values if isinstance(value, torch.Tensor)}
    return tuple(sorted(devices, key=str))
