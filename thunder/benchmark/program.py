"""A callable with its inputs, run forward, forward and backward, or backward alone.

It gives the results to be checked and the workload to be timed. Compiling it and comparing it
with others is `runner.py`'s job.
"""

from __future__ import annotations

import copy
import enum
from collections.abc import Callable, Collection, Container, Mapping
from dataclasses import dataclass
from typing import Any, final

import torch
from torch import nn
from torch.utils._pytree import tree_leaves, tree_map

from thunder.benchmark.inputs import Inputs
from thunder.benchmark.workload import Workload, devices_of
from thunder.dynamo.isolation import with_own_code
from thunder.errors import BenchmarkError

Results = Mapping[str, Any]
"""What a run gave: outputs, gradients, and inputs that it wrote to."""


class Compute(enum.Enum):
    """Which part of a program is run and timed."""

    FORWARD = "forward"
    FORWARD_BACKWARD = "forward+backward"
    BACKWARD = "backward"


@final
@dataclass(frozen=True, kw_only=True, slots=True)
class Program:
    """A callable, what it is called with, and what of it is run.

    Attributes:
        function: The callable. When it is a module, its parameters and buffers are the tensors
            in `inputs.state`.
        inputs: Its inputs.
        compute: What is run.
        seed: Seed of the random generators before each run that is checked.

    Example:
        >>> import torch
        >>> x = torch.ones(2, requires_grad=True)
        >>> program = Program.bind(
        ...     torch.sin, Inputs(args=(x,)), compute=Compute.FORWARD_BACKWARD
        ... )
        >>> sorted(program.results())
        ['gradients', 'outputs', 'outputs require grad']
    """

    function: Callable[..., Any]
    inputs: Inputs
    compute: Compute
    seed: int = 0

    @staticmethod
    def bind(
        function: Callable[..., Any],
        inputs: Inputs,
        *,
        compute: Compute,
        seed: int = 0,
        original: Inputs | None = None,
    ) -> Program:
        """Gives a callable inputs of its own.

        Args:
            function: The callable; it is left as it is. What is called is a module of the same
                structure that holds `inputs.state`, or a function with the same code: what
                Dynamo compiles for it is not counted with what it compiled for others.
            inputs: The inputs.
            compute: What to run.
            seed: Seed of the random generators.
            original: The inputs that `function` has now; `inputs` when None.
        """
        if isinstance(function, nn.Module):
            state = (original or inputs).state
            memo = {id(tensor): inputs.state[name] for name, tensor in state.items()}
            bound: Callable[..., Any] = copy.deepcopy(function, memo)
        else:
            bound = with_own_code(function)
        return Program(function=bound, inputs=inputs, compute=compute, seed=seed)

    def replaced(self, function: Callable[..., Any]) -> Program:
        """Returns the same program with a compiled callable in place of the original."""
        return Program(function=function, inputs=self.inputs, compute=self.compute, seed=self.seed)

    @property
    def devices(self) -> tuple[torch.device, ...]:
        """The devices that its tensors live on."""
        return devices_of(self.inputs.tensors().values())

    def results(self, written: Container[str] = ()) -> Results:
        """Runs the program once.

        Args:
            written: Names of inputs that it writes to and that the results shall include.

        Returns:
            Outputs, gradients by input and, for those in `written`, the inputs afterwards, all
            copied to the CPU.
        """
        differentiable = self.inputs.differentiable()
        # Taken before the run, which may write to inputs that are no leaves.
        edges = {
            name: torch.autograd.graph.get_gradient_edge(x) for name, x in differentiable.items()
        }
        torch.manual_seed(self.seed)
        outputs = self.function(*self.inputs.args)
        roots = _roots(outputs)
        results: dict[str, Any] = {
            "outputs": tree_map(_kept, outputs),
            "outputs require grad": len(roots),
        }
        if self.compute is not Compute.FORWARD:
            found = list(_gradients(roots, list(edges.values()), _slopes(roots)))
            # Each is freed as soon as it is copied: together they are as large as the weights.
            results["gradients"] = {name: _kept(found.pop(0)) for name in edges}
        afterwards = {
            name: _kept(x) for name, x in self.inputs.tensors().items() if name in written
        }
        return results | ({"inputs afterwards": afterwards} if afterwards else {})

    def workload(self, written: Collection[str] = ()) -> Workload:
        """Returns what is timed.

        Args:
            written: Names of inputs that the program writes to. Where autograd records such
                writes, each call gets fresh inputs, untimed.

        Raises:
            BenchmarkError: (when run) a backward pass is asked for and nothing requires grad.
        """
        keys = self.inputs.keys_of(written)
        grows = bool(self.inputs.names_in(keys) & self.inputs.differentiable().keys())
        prepare = (lambda: self.inputs.copy(only=keys)) if grows else (lambda: self.inputs)
        step = _Step(self.function, self.compute)
        if self.compute is Compute.BACKWARD:
            return Workload(
                function=step.backward,
                prepare=lambda: step.forward(prepare()),
                devices=self.devices,
            )
        if grows:
            return Workload(function=step.whole, prepare=prepare, devices=self.devices)
        inputs, function = self.inputs, self.function
        if self.compute is Compute.FORWARD:
            args = inputs.args
            return Workload(function=lambda: function(*args), devices=self.devices)
        return Workload(function=lambda: step.whole(inputs), devices=self.devices)


class _Step:
    """A run that is repeated, with the gradients of its outputs made once."""

    def __init__(self, function: Callable[..., Any], compute: Compute) -> None:
        self._function = function
        self._compute = compute
        self._slopes: list[torch.Tensor] = []

    def forward(self, inputs: Inputs) -> tuple[list[torch.Tensor], list[Any]]:
        edges = [
            torch.autograd.graph.get_gradient_edge(x) for x in inputs.differentiable().values()
        ]
        roots = _roots(self._function(*inputs.args))
        if not roots or not edges:
            raise BenchmarkError(
                f"no gradient to compute for {self._compute.value!r}: "
                f"{len(edges)} inputs and {len(roots)} outputs require grad; use 'forward'"
            )
        if not self._slopes:
            self._slopes = _slopes(roots)
        return roots, edges

    def backward(self, prepared: tuple[list[torch.Tensor], list[Any]]) -> None:
        _gradients(*prepared, self._slopes)

    def whole(self, inputs: Inputs) -> None:
        if self._compute is Compute.FORWARD:
            self._function(*inputs.args)
        else:
            self.backward(self.forward(inputs))


def _roots(outputs: Any) -> list[torch.Tensor]:
    leaves = tree_leaves(outputs)
    return [x for x in leaves if isinstance(x, torch.Tensor) and x.requires_grad]


def _gradients(
    roots: list[torch.Tensor], edges: list[Any], slopes: list[torch.Tensor]
) -> tuple[Any, ...]:
    if not roots or not edges:
        return (None,) * len(edges)
    return torch.autograd.grad(roots, edges, slopes, allow_unused=True)


def _slopes(roots: list[torch.Tensor]) -> list[torch.Tensor]:
    """Returns gradients to start from: different numbers from 0.5 to 1.5, exact in any dtype."""
    slopes = []
    for root in roots:
        steps = torch.arange(root.numel(), device=root.device).remainder(65)
        slope = steps.to(torch.float64).div(64).add(0.5).view(root.shape)
        slopes.append(slope.to(root.dtype))
    return slopes


def _kept(value: Any) -> Any:
    """Copies a result to the CPU, where it costs the device nothing."""
    if not isinstance(value, torch.Tensor):
        return value
    with torch.no_grad():
        return value.detach().to("cpu", copy=True) if not value.is_meta else value.detach()
