"""A Llama on several devices: thunderfx against torch.compile, and losses against eager.

Under each strategy every rank is a process with a device of its own. All compilers train the same
model on the same data for ten steps, and their losses are compared; then steps of each are timed in
turn. A step takes as long as it does on the slowest rank. Weights are random; nothing is
downloaded.

    python benchmarks/distributed.py
    python benchmarks/distributed.py --strategies ddp fsdp --ranks 4 --contest full
    python benchmarks/distributed.py --tiny --device cpu --executors aten --backend aot_eager
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from datetime import timedelta
from pathlib import Path
from typing import Any

os.environ.setdefault("HF_HUB_OFFLINE", "1")

import torch
import torch.distributed as dist
import transformers
from rich.console import Console
from rich.table import Table
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard
from torch.distributed.tensor import DTensor
from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module
from torch.multiprocessing.spawn import spawn
from torch.nn.parallel import DistributedDataParallel

from thunder import ThunderCompiler, thunderfx
from thunder.environment import environment_report

LLAMA: dict[str, Any] = {
    "vocab_size": 32000,
    "hidden_size": 2048,
    "intermediate_size": 5632,
    "num_hidden_layers": 4,
    "num_attention_heads": 16,
    "num_key_value_heads": 8,
    "head_dim": 128,
    "max_position_embeddings": 4096,
    "use_cache": False,
}
TINY: dict[str, Any] = LLAMA | {
    "vocab_size": 64,
    "hidden_size": 32,
    "intermediate_size": 64,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 8,
}
COMPILERS = ("eager", "torch.compile", "thunderfx")
TOLERANCE = 2e-2
"""How far a loss may be from eager's, relatively: bfloat16 rounds to 1 part in 256."""

TENSOR_PARALLEL = {
    "self_attn.q_proj": ColwiseParallel,
    "self_attn.k_proj": ColwiseParallel,
    "self_attn.v_proj": ColwiseParallel,
    "self_attn.o_proj": RowwiseParallel,
    "mlp.gate_proj": ColwiseParallel,
    "mlp.up_proj": ColwiseParallel,
    "mlp.down_proj": RowwiseParallel,
}

Step = Callable[[], torch.Tensor]


@dataclass(frozen=True, kw_only=True, slots=True)
class Measured:
    """What one rank found out about one compiler.

    Attributes:
        losses: The loss of each step, the mean over all ranks.
        seconds: Median time of a step.
        peak_bytes: The most memory of a step, its own weights and optimizer included; None on CPU.
        first_seconds: Time of the first step, compiling included.
    """

    losses: list[float]
    seconds: float
    peak_bytes: int | None
    first_seconds: float


class Training:
    """A model that one compiler trains."""

    def __init__(self, strategy: str, compiler: str, options: argparse.Namespace) -> None:
        """Builds the model; nothing is compiled before the first step."""
        self._device = _device(options)
        before = self._allocated()
        model, inputs = STRATEGIES[strategy](compiler, options, self._device)
        self._model, self._inputs = model, inputs
        # One fused kernel cannot take distributed and plain tensors together.
        groups = [
            [p for p in model.parameters() if isinstance(p, DTensor) is distributed]
            for distributed in (False, True)
        ]
        self._optimizer = torch.optim.AdamW(
            [{"params": group} for group in groups if group], lr=1e-4, fused=True
        )
        self.peak_bytes = 0
        started = self._now()
        first = self._step(0)
        self.first_seconds = self._now() - started
        self.losses = [first, *(self._step(number) for number in range(1, options.steps))]
        self._own_bytes = self._allocated() - before

    def time(self) -> float:
        """Returns the seconds of one step, and keeps the most memory that one took."""
        others = self._allocated() - self._own_bytes
        if self._device.type == "cuda":
            torch.cuda.reset_peak_memory_stats()
        dist.barrier()
        started = self._now()
        self._step(0)
        seconds = self._now() - started
        if self._device.type == "cuda":
            peak = torch.cuda.max_memory_allocated() - others
            self.peak_bytes = max(self.peak_bytes, peak)
        return seconds

    def _step(self, number: int) -> torch.Tensor:
        ids = self._inputs[number]
        loss = self._model(input_ids=ids, labels=ids).loss
        loss.backward()
        self._optimizer.step()
        self._optimizer.zero_grad()
        return loss.detach()

    def _allocated(self) -> int:
        return torch.cuda.memory_allocated() if self._device.type == "cuda" else 0

    def _now(self) -> float:
        if self._device.type == "cuda":
            torch.cuda.synchronize()
        return time.perf_counter()


def _ddp(compiler: str, options: argparse.Namespace, device: torch.device) -> tuple[Any, Any]:
    model = _model(options, device).to(torch.bfloat16)
    ids = [device] if device.type == "cuda" else None
    return _compiled(DistributedDataParallel(model, device_ids=ids), compiler, options), _batches(
        options, device, seed=dist.get_rank()
    )


def _fsdp(compiler: str, options: argparse.Namespace, device: torch.device) -> tuple[Any, Any]:
    model: Any = _model(options, device)
    mesh = init_device_mesh(device.type, (dist.get_world_size(),))
    policy = MixedPrecisionPolicy(param_dtype=torch.bfloat16, reduce_dtype=torch.float32)
    for layer in model.model.layers:
        fully_shard(layer, mesh=mesh, mp_policy=policy)
        _compile_in_place(layer, compiler, options)
    fully_shard(model, mesh=mesh, mp_policy=policy)
    return model, _batches(options, device, seed=dist.get_rank())


def _tensor_parallel(
    compiler: str, options: argparse.Namespace, device: torch.device
) -> tuple[Any, Any]:
    model: Any = _model(options, device).to(torch.bfloat16)
    mesh = init_device_mesh(device.type, (dist.get_world_size(),))
    for layer in model.model.layers:
        parallelize_module(layer, mesh, {name: style() for name, style in TENSOR_PARALLEL.items()})
    return _compiled(model, compiler, options), _batches(options, device, seed=0)


STRATEGIES = {"ddp": _ddp, "fsdp": _fsdp, "tensor-parallel": _tensor_parallel}


def main() -> int:
    """Runs what is asked for and returns the exit status."""
    options = _options()
    console = Console(width=None if sys.stdout.isatty() else 120, highlight=False)
    console.print(environment_report().headline())
    found: dict[str, list[dict[str, Any]]] = {}
    for strategy in options.strategies:
        with tempfile.TemporaryDirectory() as folder:
            spawn(run_rank, (strategy, options, folder), nprocs=options.ranks)
            found[strategy] = [
                json.loads((Path(folder) / f"rank{rank}.json").read_text())
                for rank in range(options.ranks)
            ]
    print(json.dumps(found))
    console.print(_table(found))
    distances = [d for ranks in found.values() for d in _distances(ranks).values()]
    return 1 if any(distance > TOLERANCE for distance in distances) else 0


def run_rank(rank: int, strategy: str, options: argparse.Namespace, folder: str) -> None:
    """Measures all compilers on one rank and writes what it found into the folder."""
    if options.device == "cuda":
        torch.cuda.set_device(rank)
    else:
        torch.set_num_threads(1)  # the ranks share the cores
    dist.init_process_group(
        "nccl" if options.device == "cuda" else "gloo",
        init_method=f"file://{folder}/store",
        rank=rank,
        world_size=options.ranks,
        timeout=timedelta(minutes=5),
        device_id=torch.device("cuda", rank) if options.device == "cuda" else None,
    )
    trainings = {name: Training(strategy, name, options) for name in options.compilers}
    times: dict[str, list[float]] = {name: [] for name in trainings}
    for _ in range(options.rounds):
        for name, training in trainings.items():
            times[name].append(training.time())
    found = {
        name: asdict(
            Measured(
                losses=_mean_over_ranks(training.losses),
                seconds=statistics.median(times[name]),
                peak_bytes=training.peak_bytes or None,
                first_seconds=training.first_seconds,
            )
        )
        for name, training in trainings.items()
    }
    (Path(folder) / f"rank{rank}.json").write_text(json.dumps(found))
    dist.barrier()
    dist.destroy_process_group()


def _compiled(module: nn.Module, compiler: str, options: argparse.Namespace) -> Any:
    match compiler:
        case "eager":
            return module
        case "torch.compile":
            return torch.compile(module, backend=options.backend)
        case _:
            return thunderfx(module, executors=options.executors, contest=options.contest)


def _compile_in_place(module: nn.Module, compiler: str, options: argparse.Namespace) -> None:
    match compiler:
        case "torch.compile":
            module.compile(backend=options.backend)
        case "thunderfx":
            module.compile(
                backend=ThunderCompiler(executors=options.executors, contest=options.contest)
            )


def _model(options: argparse.Namespace, device: torch.device) -> nn.Module:
    torch.manual_seed(0)
    config = transformers.LlamaConfig(**(TINY if options.tiny else LLAMA))
    with device:
        return transformers.LlamaForCausalLM(config)


def _batches(options: argparse.Namespace, device: torch.device, *, seed: int) -> list[torch.Tensor]:
    sizes = TINY if options.tiny else LLAMA
    shape = (2, 16) if options.tiny else (2, 2048)
    generator = torch.Generator().manual_seed(seed)
    return [
        torch.randint(0, sizes["vocab_size"], shape, generator=generator).to(device)
        for _ in range(options.steps)
    ]


def _device(options: argparse.Namespace) -> torch.device:
    return (
        torch.device("cuda", dist.get_rank())
        if options.device == "cuda"
        else torch.device(options.device)
    )


def _mean_over_ranks(losses: list[torch.Tensor]) -> list[float]:
    stacked = torch.stack(losses).float()
    dist.all_reduce(stacked)
    return (stacked / dist.get_world_size()).tolist()


def _distances(ranks: list[dict[str, Any]]) -> dict[str, float]:
    """Returns how far each compiler's losses are from eager's, relatively, at most."""
    if "eager" not in ranks[0]:
        return {}
    return {
        name: max(
            abs(loss - expected) / abs(expected)
            for rank in ranks
            for loss, expected in zip(rank[name]["losses"], rank["eager"]["losses"], strict=True)
        )
        for name in ranks[0]
        if name != "eager"
    }


def _table(found: dict[str, list[dict[str, Any]]]) -> Table:
    table = Table(title="as parts of torch.compile's: speed above 1 is faster, memory below 1 less")
    for column in ("strategy", "compiler", "step", "speed", "peak a rank", "memory", "from eager"):
        table.add_column(column)
    for strategy, ranks in found.items():
        distances = _distances(ranks)
        for name in ranks[0]:
            seconds, peak = _slowest(ranks, name), _peak(ranks, name)
            base, base_peak = _slowest(ranks, "torch.compile"), _peak(ranks, "torch.compile")
            table.add_row(
                strategy,
                name,
                f"{seconds * 1e3:.2f} ms" if seconds else "",
                f"{base / seconds:.3f}" if base and seconds else "",
                f"{peak / 2**30:.2f} GiB" if peak else "",
                f"{peak / base_peak:.3f}" if peak and base_peak else "",
                f"{distances[name]:.1e}" if name in distances else "",
            )
    return table


def _slowest(ranks: list[dict[str, Any]], name: str) -> float | None:
    return max((rank[name]["seconds"] for rank in ranks if name in rank), default=None)


def _peak(ranks: list[dict[str, Any]], name: str) -> int | None:
    peaks = [rank[name]["peak_bytes"] for rank in ranks if name in rank]
    return max((peak for peak in peaks if peak), default=None)


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--strategies", nargs="+", choices=list(STRATEGIES), default=[*STRATEGIES])
    parser.add_argument("--compilers", nargs="+", choices=COMPILERS, default=[*COMPILERS])
    parser.add_argument("--ranks", type=int, help="default: one for each GPU; two on CPU")
    parser.add_argument("--device", choices=("cuda", "cpu"), default="cuda")
    parser.add_argument("--steps", type=int, default=10, help="whose losses are compared")
    parser.add_argument("--rounds", type=int, default=30, help="steps of each that are timed")
    parser.add_argument("--tiny", action="store_true", help="a model for trying this out")
    parser.add_argument("--executors", default="auto", help="of thunderfx, separated by commas")
    parser.add_argument("--contest", choices=("full", "cached", "off"), default="cached")
    parser.add_argument("--backend", default="inductor", help="of torch.compile")
    options = parser.parse_args()
    if options.executors != "auto":
        options.executors = options.executors.split(",")
    if options.ranks is None:
        options.ranks = torch.cuda.device_count() if options.device == "cuda" else 2
    if options.device == "cuda" and not 1 <= options.ranks <= torch.cuda.device_count():
        parser.error(f"{options.ranks} ranks need as many GPUs; torch sees fewer")
    return options


if __name__ == "__main__":
    sys.exit(main())
