"""A built fusion for one layout of a region's inputs: runs it and shows its kernels."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, final

import torch

from thunder.errors import ExecutorError
from thunder.executors.nvfuser.definition import Definition, ScalarInput, TensorInput
from thunder.executors.nvfuser.translate import InputLayout


@final
class Variant:
    """The fusion for one layout of the inputs.

    Attributes:
        definition: What was translated.
        fusion: nvFuser's `FusionDefinition`.
        device_index: The CUDA device that it runs on.
        has_run: Whether its kernels are compiled.
    """

    def __init__(
        self,
        definition: Definition,
        fusion: Any,
        *,
        layouts: Sequence[InputLayout | None],
        strides: Sequence[tuple[int, ...] | None],
        device_index: int | None,
    ) -> None:
        """Wraps a built fusion.

        Args:
            definition: What was translated.
            fusion: nvFuser's `FusionDefinition`.
            layouts: The layout of each of the region's placeholders, None for numbers.
            strides: The strides that each output must have, None where they are symbolic.
            device_index: The CUDA device.
        """
        self.definition = definition
        self.fusion = fusion
        self.device_index = device_index
        self.has_run = False
        self._layouts = layouts
        self._strides = strides
        self._restrided: tuple[int, ...] = ()
        positions = [entry.position for entry in definition.inputs]
        self._positions = None if positions == list(range(len(layouts))) else positions

    def __call__(self, args: Sequence[Any]) -> list[torch.Tensor]:
        """Runs the fusion.

        Args:
            args: The region's inputs, those that the fusion does not need included.

        Returns:
            The fusion's outputs, with the strides that were asked for.
        """
        if self._positions is not None:
            args = [args[position] for position in self._positions]
        if not self.has_run:
            return self._first_run(args)
        outputs = self.fusion.fec.execute(args, device=self.device_index)
        for place in self._restrided:
            outputs[place] = self._with_strides(outputs[place], place)
        return outputs

    def kernels(self) -> str:
        """Returns the CUDA source of the kernels; compiles them where that has not happened."""
        inputs = self._stand_ins()
        return self.fusion.fec.get_cuda_kernel(inputs, device=self.device_index or 0)

    def scheduled_ir(self) -> str:
        """Returns nvFuser's scheduled IR of the kernels."""
        inputs = self._stand_ins()
        return self.fusion.fec.get_scheduled_ir(inputs, device=self.device_index or 0)

    def _first_run(self, args: Sequence[Any]) -> list[torch.Tensor]:
        outputs = self._compile_and_run(args)
        self._restrided = tuple(
            place
            for place, (output, strides) in enumerate(zip(outputs, self._strides, strict=True))
            if strides is not None and output.stride() != strides
        )
        self.has_run = True
        for place in self._restrided:
            outputs[place] = self._with_strides(outputs[place], place)
        return outputs

    def _compile_and_run(self, args: Sequence[Any]) -> list[torch.Tensor]:
        try:
            return self.fusion.execute(list(args), device=self.device_index)
        except torch.OutOfMemoryError:
            raise
        except RuntimeError as error:
            head = [line.strip() for line in str(error).splitlines() if line.strip()][:3]
            raise ExecutorError(f"nvFuser could not compile a fusion: {' '.join(head)}") from error

    def _with_strides(self, output: torch.Tensor, place: int) -> torch.Tensor:
        strides = self._strides[place]
        assert strides is not None
        dims = zip(output.shape, output.stride(), strides, strict=True)
        if all(size == 1 for size, actual, wanted in dims if actual != wanted):
            return output.as_strided(output.shape, strides)
        # nvFuser returns dimensions that it only broadcasts with stride 0.
        copy = torch.empty_strided(output.shape, strides, dtype=output.dtype, device=output.device)
        return copy.copy_(output)

    def _device(self, entry: TensorInput) -> str:
        return "cpu" if entry.is_cpu else f"cuda:{self.device_index or 0}"

    def _stand_ins(self) -> list[Any]:
        """Runs the fusion on zeros laid out like the inputs, for nvFuser's getters to refer to."""
        inputs: list[Any] = []
        for entry in self.definition.inputs:
            layout = self._layouts[entry.position]
            if isinstance(entry, ScalarInput) or layout is None:
                inputs.append(1)
                continue
            stand_in = torch.empty_strided(
                layout.sizes,
                layout.strides,
                dtype=entry.value.dtype,
                device=self._device(entry),
            )
            inputs.append(stand_in.zero_())
        self.fusion.execute(inputs, device=self.device_index)
        return inputs
