"""What reports about torch-level graphs add: scripts for the three usual ways to run them."""

from __future__ import annotations

import abc
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from thunder.benchmark import (
    ThunderCompileSpecification,
    TorchCompileSpecification,
    TorchEagerSpecification,
)
from thunder.dynamo.report.graph_report import AbstractGraphReport, Folder


class AbstractTorchGraphReport(AbstractGraphReport):
    """A report about a graph of torch operators: a Dynamo graph, or a segment of one."""

    @property
    @abc.abstractmethod
    def thunder_options(self) -> Mapping[str, Any]:
        """Keywords of `thunderfx` that the report was made with."""

    @property
    def default_specification(self) -> ThunderCompileSpecification:
        """`thunderfx`, with the report's options. A failure is a failure, not a fallback."""
        options = {"on_failure": "raise", **self.thunder_options}
        specification = ThunderCompileSpecification(**options)
        specification.name = "thunder"  # all of its options are the report's, no need to tell
        return specification

    def write_eager_repro(
        self,
        folder: Folder,
        *,
        file_name: str | None = None,
        serialize_inputs: bool = False,
        verify: bool = False,
        notes: Sequence[str] = (),
    ) -> Path:
        """Writes a script that runs the graph as it is: `graph0_repro_eager.py`.

        Args:
            folder: Where to; made when missing.
            file_name: Another name.
            serialize_inputs: Save the real inputs beside it instead of drawing such inputs.
            verify: Run it once in a fresh process; its header then states the verdict.
            notes: Sentences for its reader.

        Raises:
            ReproducerError: It cannot be written.
        """
        return self.write_repro(
            folder,
            TorchEagerSpecification(),
            file_name=file_name or f"{self.name}_repro_eager.py",
            serialize_inputs=serialize_inputs,
            verify=verify,
            notes=notes,
        )

    def write_thunder_repro(
        self,
        folder: Folder,
        *,
        file_name: str | None = None,
        serialize_inputs: bool = False,
        verify: bool = False,
        notes: Sequence[str] = (),
        **options: Any,
    ) -> Path:
        """Writes a script that runs the graph with `thunderfx`: `graph0_repro_thunder.py`.

        Args:
            folder: Where to; made when missing.
            file_name: Another name.
            serialize_inputs: Save the real inputs beside it instead of drawing such inputs.
            verify: Run it once in a fresh process; its header then states the verdict.
            notes: Sentences for its reader.
            options: Keywords of `thunderfx`, besides those of the report.

        Raises:
            ReproducerError: It cannot be written.
            OptionError: An option is unknown or belongs elsewhere.
        """
        every = {"on_failure": "raise", **self.thunder_options, **options}
        return self.write_repro(
            folder,
            ThunderCompileSpecification(**every),
            file_name=file_name or f"{self.name}_repro_thunder.py",
            serialize_inputs=serialize_inputs,
            verify=verify,
            notes=notes,
        )

    def write_inductor_repro(
        self,
        folder: Folder,
        *,
        file_name: str | None = None,
        serialize_inputs: bool = False,
        verify: bool = False,
        notes: Sequence[str] = (),
        **options: Any,
    ) -> Path:
        """Writes a script that runs it with `torch.compile`: `graph0_repro_torchcompile.py`.

        Args:
            folder: Where to; made when missing.
            file_name: Another name.
            serialize_inputs: Save the real inputs beside it instead of drawing such inputs.
            verify: Run it once in a fresh process; its header then states the verdict.
            notes: Sentences for its reader.
            options: Keywords of `torch.compile`.

        Raises:
            ReproducerError: It cannot be written.
            OptionError: `torch.compile` has no such keyword.
        """
        return self.write_repro(
            folder,
            TorchCompileSpecification(**options),
            file_name=file_name or f"{self.name}_repro_torchcompile.py",
            serialize_inputs=serialize_inputs,
            verify=verify,
            notes=notes,
        )
