"""What the package needs from its surroundings, and a description of them.

`check_environment` runs once, when the package is imported, and must stay cheap. The report is
data for `thunder env` and for the headers of scripts. Nothing here imports an optional package:
presence and versions come from package metadata.
"""

from __future__ import annotations

import dataclasses
import functools
import importlib.metadata
import importlib.util
import os
import platform
import re
import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path

import torch

from thunder.errors import UnsupportedEnvironmentError

DISTRIBUTION = "thunderfx"
OTHER_CLAIMANT = "lightning-thunder"
MINIMUM_TORCH = (2, 10)
ABSENT = "not installed"


def check_environment() -> None:
    """Refuses surroundings in which the package cannot work.

    Raises:
        UnsupportedEnvironmentError: torch is too old, or another distribution installs a package
            of the same import name.

    Example:
        >>> from thunder.environment import check_environment
        >>> check_environment()
    """
    check_torch_version(str(torch.__version__))
    check_import_name()


def check_torch_version(version: str) -> None:
    """Refuses a torch release that is older than the oldest supported one.

    Only the release number counts, so that builds such as `2.10.0a0+git1234` of vendors pass.

    Args:
        version: A version as in `torch.__version__`.

    Raises:
        UnsupportedEnvironmentError: The release is too old, or `version` is no version.
    """
    release = re.match(r"(\d+)\.(\d+)", version)
    if release and tuple(map(int, release.groups())) >= MINIMUM_TORCH:
        return
    wanted = ".".join(map(str, MINIMUM_TORCH))
    raise UnsupportedEnvironmentError(
        f"thunder needs torch {wanted} or newer, and torch {version} is installed. "
        f"Install a newer one: pip install 'torch>={wanted}'"
    )


def check_import_name() -> None:
    """Refuses an environment in which another distribution provides `thunder` as well.

    The one known claimant is asked for by name: going through the metadata of every installed
    distribution takes some 0.1 s, this takes well under a millisecond.

    Raises:
        UnsupportedEnvironmentError: The other distribution is installed.
    """
    try:
        other = importlib.metadata.distribution(OTHER_CLAIMANT)
    except importlib.metadata.PackageNotFoundError:
        return
    here = Path(__file__).resolve().parent
    there = Path(str(other.locate_file("thunder"))).resolve()
    consequence = (
        f"their files are mixed in {here}"
        if here == there
        else f"this process got the one in {here}, the other one is hidden"
    )
    raise UnsupportedEnvironmentError(
        f"The distributions {DISTRIBUTION} and {OTHER_CLAIMANT} {other.version} both provide the "
        f"import name `thunder`, and both are installed: {consequence}. Give each an environment "
        f"of its own, or keep one: pip uninstall {DISTRIBUTION} {OTHER_CLAIMANT}, then "
        f"pip install {DISTRIBUTION}"
    )


def package_version() -> str:
    """Returns the installed version of this package, or a note that it is not installed."""
    return distribution_version(DISTRIBUTION)


@dataclass(frozen=True, kw_only=True, slots=True)
class EnvironmentReport:
    """Versions and hardware, as far as they can change what the compiler does.

    Attributes:
        thunder: Version of this package.
        torch: Version of torch.
        python: Implementation and version of Python.
        cuda: CUDA version that torch was built for, or `"none"`.
        devices: Names of the CUDA devices that torch can use, in torch's order.
        nvfuser: Version of the distribution behind `nvfuser_direct`.
        triton: Version of Triton.
        transformers: Version of Hugging Face transformers.
        numpy: Version of NumPy.
        system: Operating system and machine type.
        cpu: The processor's model name.
        cpu_capability: The vector instructions that torch's kernels use.
        cpu_threads: The number of threads that torch's kernels use.
        compiler: The C++ compiler that Inductor will find, as it names itself.
    """

    thunder: str
    torch: str
    python: str
    cuda: str
    devices: tuple[str, ...]
    nvfuser: str
    triton: str
    transformers: str
    numpy: str
    system: str
    cpu: str
    cpu_capability: str
    cpu_threads: int
    compiler: str

    def as_dict(self) -> dict[str, str | int | list[str]]:
        """Returns the fields in order, ready for JSON."""
        return {
            field.name: list(value)
            if isinstance(value := getattr(self, field.name), tuple)
            else value
            for field in dataclasses.fields(self)
        }

    def headline(self) -> str:
        """Returns one line with what matters most, for the header of a script."""
        devices = ", ".join(self.devices) or "CPU only"
        return (
            f"thunder {self.thunder}, torch {self.torch}, {self.python}, {self.system}, {devices}"
        )

    def __str__(self) -> str:
        """Returns one `name: value` line for each field."""
        rows = self.as_dict() | {"devices": ", ".join(self.devices) or "none"}
        width = max(map(len, rows)) + 1
        return "\n".join(f"{name + ':':<{width}} {value}" for name, value in rows.items())


def environment_report() -> EnvironmentReport:
    """Describes this process's environment.

    Returns:
        The report. It names no path, time or process, so that two runs on one machine agree.

    Example:
        >>> from thunder.environment import environment_report
        >>> environment_report().python.startswith("CPython 3.")
        True
    """
    return EnvironmentReport(
        thunder=package_version(),
        torch=str(torch.__version__),
        python=f"{platform.python_implementation()} {platform.python_version()}",
        cuda=torch.version.cuda or "none",
        devices=_cuda_devices(),
        nvfuser=nvfuser_version(),
        triton=distribution_version("triton"),
        transformers=distribution_version("transformers"),
        numpy=distribution_version("numpy"),
        system=f"{platform.system()} {platform.machine()}",
        cpu=_cpu_model(),
        cpu_capability=torch.backends.cpu.get_cpu_capability(),
        cpu_threads=torch.get_num_threads(),
        compiler=_compiler(),
    )


def distribution_version(name: str) -> str:
    """Returns the version of an installed distribution, or a note that it is not installed."""
    try:
        return importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        return ABSENT


def nvfuser_version() -> str:
    """Returns distribution and version behind `nvfuser_direct`, or a note that it is absent."""
    if importlib.util.find_spec("nvfuser_direct") is None:
        return ABSENT
    # The distribution's name says for which CUDA and torch it was built, so it is looked up.
    owners = importlib.metadata.packages_distributions().get("nvfuser_direct", ())
    named = [f"{owner} {distribution_version(owner)}" for owner in sorted(set(owners))]
    return ", ".join(named) or "present, version unknown"


def _cuda_devices() -> tuple[str, ...]:
    if not torch.cuda.is_available():
        return ()
    try:
        return tuple(map(torch.cuda.get_device_name, range(torch.cuda.device_count())))
    except RuntimeError as error:  # in a forked child, or with a driver that does not answer
        return (f"unknown ({str(error).splitlines()[0]})",)


@functools.cache
def _cpu_model() -> str:
    listing = Path("/proc/cpuinfo")
    if listing.exists():
        model = re.search(r"^model name\s*:\s*(.+)$", listing.read_text(), re.MULTILINE)
        if model:
            return model[1].strip()
    return platform.processor() or platform.machine()


@functools.cache
def _compiler() -> str:
    command = shutil.which(os.environ.get("CXX", "g++")) or shutil.which("clang++")
    if command is None:
        return "none found"
    try:
        shown = subprocess.run(
            [command, "--version"], capture_output=True, text=True, timeout=10, check=True
        )
    except (OSError, subprocess.SubprocessError) as error:
        return f"unknown ({type(error).__name__})"
    return shown.stdout.partition("\n")[0]
