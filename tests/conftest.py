"""What every test runs under: one thread, fixed seeds, a clean Dynamo, no network.

The environment is set before torch is imported, and processes that tests start inherit it.
"""

from __future__ import annotations

import importlib.metadata
import importlib.util
import os
import random
import signal
import sys
from pathlib import Path

os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("HF_HUB_OFFLINE", "1")
os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
if (os.cpu_count() or 1) <= 4:
    # pytest-xdist keeps the cores busy; Inductor's own worker processes would only get in the way.
    os.environ.setdefault("TORCHINDUCTOR_COMPILE_THREADS", "1")
for variable in [name for name in os.environ if name.startswith("THUNDER_")]:
    # A developer's debug settings must not change what the tests see.
    del os.environ[variable]

import numpy  # noqa: E402
import pytest  # noqa: E402
import torch  # noqa: E402

GPU_TESTS = Path(__file__).parent / "gpu"


def pytest_configure(config: pytest.Config) -> None:
    """Sets up what all tests share: Ctrl-C, Inductor's kernels, what hypothesis tries."""
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        # A shell starts background jobs so, and what they start ignores Ctrl-C as well.
        signal.signal(signal.SIGINT, signal.default_int_handler)
    cache = getattr(config, "cache", None)  # absent with `-p no:cacheprovider`
    if cache is not None:
        folder = cache.mkdir(f"inductor-{importlib.metadata.version('torch')}")
        os.environ.setdefault("TORCHINDUCTOR_CACHE_DIR", str(folder))
    if importlib.util.find_spec("hypothesis"):
        from hypothesis import settings  # noqa: PLC0415 - not installed on GPU machines

        settings.register_profile("thunder", deadline=None, derandomize=True, database=None)
        settings.load_profile("thunder")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Refuses names with addresses, marks tests/gpu, skips what needs CUDA where there is none."""
    addressed = [item.nodeid for item in items if " at 0x" in item.nodeid]
    if addressed:
        # pytest-xdist runs nothing when two workers name a test differently.
        raise pytest.UsageError(f"give this test an id without a memory address: {addressed[0]}")
    for item in items:
        if GPU_TESTS in item.path.parents:
            item.add_marker("gpu")
    if torch.cuda.is_available():
        return
    reason = "needs a CUDA device; `make gpu` runs it on a machine that has one"
    for item in items:
        if item.get_closest_marker("gpu"):
            item.add_marker(pytest.mark.skip(reason=reason))


@pytest.fixture(autouse=True)
def _same_start():
    """Lets no test see what another one compiled, drew, or wrote to the environment."""
    environment = dict(os.environ)
    random.seed(0)
    numpy.random.seed(0)
    torch.manual_seed(0)
    yield
    for name in set(os.environ) - set(environment):
        if name.startswith("THUNDER_"):
            del os.environ[name]
    if dynamo := sys.modules.get("torch._dynamo"):  # importing it takes a second
        dynamo.reset()
