"""A small Hugging Face Llama: thunderfx against torch.compile, steady state and first call.

Steady state: inference and a training step, interleaved in one process. First call: the time from
`thunderfx(model)` to the first result, in fresh processes, each with empty caches of its own, in
pairs of drawn order. Weights are random; nothing is downloaded.

    python benchmarks/demo_model.py
    python benchmarks/demo_model.py --device cuda --layers 8 --hidden 1024 --dtype bfloat16
    python benchmarks/demo_model.py --pairs 7 --seconds 60 --fail-above 1.05
"""

from __future__ import annotations

import argparse
import copy
import json
import os
import random
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

os.environ.setdefault("HF_HUB_OFFLINE", "1")

import torch
from rich.console import Console
from rich.progress import Progress
from torch import nn
from transformers import LlamaConfig, LlamaForCausalLM

from thunder.benchmark import (
    AbstractTimer,
    Comparison,
    RichProgress,
    Settings,
    ThunderCompileSpecification,
    TorchCompileSpecification,
    Verdict,
    WallTimeWithMemoryUsage,
    Workload,
    compare_speed,
)
from thunder.benchmark.records import format_seconds
from thunder.benchmark.statistics import estimate, verdict
from thunder.environment import environment_report

BASELINE, CANDIDATE = "torch.compile", "thunderfx"
SPECIFICATIONS = {
    BASELINE: TorchCompileSpecification(),
    CANDIDATE: ThunderCompileSpecification(),
}
KINDS = ("inference", "training step")
VOCABULARY = 256
CHILD_SECONDS = 1800


def main() -> int:
    """Runs what is asked for and returns the exit status."""
    options = _options()
    if options.child:
        report_first_call(options)
        return 0
    console = Console(width=None if sys.stdout.isatty() else 110, highlight=False)
    console.print(environment_report().headline())
    kinds = [options.kind] if options.kind else list(KINDS)
    slow = [
        f"{kind} {comparison.low:.3f} x at least"
        for kind in kinds
        for comparison in [compare_steady_state(kind, options, console)]
        if comparison.verdict is Verdict.SLOWER and comparison.low > options.fail_above
    ]
    for kind in kinds if options.pairs else ():
        ratio = compare_first_calls(kind, options, console)
        if ratio > options.fail_first_above:
            slow.append(f"first call, {kind}: {ratio:.2f} x")
    if slow:
        console.print(f"too slow: {'; '.join(slow)}")
    return 1 if slow else 0


def make_model(options: argparse.Namespace) -> nn.Module:
    """Returns the model with random weights, the same each time."""
    torch.manual_seed(0)
    config = LlamaConfig(
        vocab_size=VOCABULARY,
        hidden_size=options.hidden,
        intermediate_size=3 * options.hidden,
        num_hidden_layers=options.layers,
        num_attention_heads=4,
        num_key_value_heads=2,
        max_position_embeddings=max(256, options.length),
        use_cache=False,
        tie_word_embeddings=False,
    )
    model = LlamaForCausalLM(config)
    return model.to(options.device, getattr(torch, options.dtype))


def make_tokens(options: argparse.Namespace) -> torch.Tensor:
    """Returns a batch of token numbers, the same each time."""
    generator = torch.Generator().manual_seed(1)
    shape = (options.batch, options.length)
    return torch.randint(VOCABULARY, shape, generator=generator).to(options.device)


def make_step(
    kind: str, model: nn.Module, compiled: Callable[..., Any], tokens: torch.Tensor
) -> Callable[[], Any]:
    """Returns one inference call, or one training step with its optimizer."""
    if kind == "inference":
        model.eval()

        def infer() -> torch.Tensor:
            with torch.no_grad():
                return compiled(tokens).logits

        return infer
    model.train()
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)

    def train() -> torch.Tensor:
        optimizer.zero_grad(set_to_none=True)
        loss = compiled(tokens, labels=tokens).loss
        loss.backward()
        optimizer.step()
        return loss.detach()

    return train


def compare_steady_state(kind: str, options: argparse.Namespace, console: Console) -> Comparison:
    """Times both in one process and prints what was found."""
    original, tokens = make_model(options), make_tokens(options)
    workloads, results = {}, {}
    for name, specification in SPECIFICATIONS.items():
        model = copy.deepcopy(original)
        compiled = specification.compile(model, inputs=[tokens])
        step = make_step(kind, model, compiled, tokens)
        results[name] = step().float()
        step()
        workloads[name] = Workload(function=step, devices=(torch.device(options.device),))
    torch.testing.assert_close(results[CANDIDATE], results[BASELINE], rtol=0.02, atol=0.02)
    timer: AbstractTimer = WallTimeWithMemoryUsage()
    settings = Settings(seconds=options.seconds, threshold=options.threshold)
    with Progress(console=console, transient=True) as display:
        hook = RichProgress(display, display.add_task("", total=1.0), kind)
        found = compare_speed(workloads, timer=timer, settings=settings, progress=hook)
    console.print(f"\n{kind}:", style="bold")
    console.print(str(found), soft_wrap=True)
    return found.comparisons[0]


def compare_first_calls(kind: str, options: argparse.Namespace, console: Console) -> float:
    """Times first calls in fresh processes, prints what was found and returns the ratio."""
    generator = random.Random(0)
    seconds: dict[str, list[float]] = {BASELINE: [], CANDIDATE: []}
    with Progress(console=console, transient=True) as display:
        task = display.add_task(f"first call, {kind}", total=2 * options.pairs)
        for _ in range(options.pairs):
            for name in generator.sample([BASELINE, CANDIDATE], 2):
                seconds[name].append(time_first_call(name, kind, options))
                display.advance(task)
    settings = Settings(threshold=options.threshold)
    found = estimate(
        seconds[BASELINE],
        seconds[CANDIDATE],
        planned_rounds=options.pairs,
        confidence=settings.confidence,
    )
    console.print(f"\nfirst call, {kind}:", style="bold")
    for name, times in seconds.items():
        console.print(f"{name}: {', '.join(map(format_seconds, sorted(times)))}")
    interval = f"95 % interval {found.low:.2f} to {found.high:.2f}, {options.pairs} pairs"
    if options.pairs < settings.least_rounds:
        interval = f"{options.pairs} pairs; an interval takes {settings.least_rounds}"
    said = verdict(found, settings.threshold).value
    console.print(f"{CANDIDATE} vs {BASELINE}: {found.ratio:.2f} x the time ({interval}): {said}")
    return found.ratio


def time_first_call(name: str, kind: str, options: argparse.Namespace) -> float:
    """Returns the seconds of a first call in a process of its own."""
    shape = ("layers", "hidden", "batch", "length", "dtype", "device")
    command = [sys.executable, str(Path(__file__).resolve()), "--child", name, "--kind", kind]
    for option in shape:
        command += [f"--{option}", str(getattr(options, option))]
    with tempfile.TemporaryDirectory(prefix="first_call_") as folder:
        done = subprocess.run(
            command,
            env=_with_empty_caches(folder),
            stdout=subprocess.PIPE,
            text=True,
            timeout=CHILD_SECONDS,
            check=True,
        )
    return json.loads(done.stdout.splitlines()[-1])["seconds"]


def report_first_call(options: argparse.Namespace) -> None:
    """Makes the first call and prints its time; this is the fresh process."""
    model, tokens = make_model(options), make_tokens(options)
    device = torch.device(options.device)
    warm_device = Workload(function=lambda: tokens.float().sum().item(), devices=(device,))
    warm_device.run()
    start = time.perf_counter()
    compiled = SPECIFICATIONS[options.child].compile(model, inputs=[tokens])
    make_step(options.kind, model, compiled, tokens)()
    warm_device.synchronize()
    print(json.dumps({"seconds": time.perf_counter() - start}))


def _with_empty_caches(folder: str) -> Mapping[str, str]:
    """Returns the environment of a process that finds nothing compiled before."""
    folders = {
        variable: str(Path(folder) / variable.lower())
        for variable in ("TORCHINDUCTOR_CACHE_DIR", "TRITON_CACHE_DIR", "XDG_CACHE_HOME")
    }
    return {**os.environ, **folders}


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--kind", choices=KINDS, help="only this; both by default")
    parser.add_argument("--seconds", type=float, default=20.0, help="time for each comparison")
    parser.add_argument("--threshold", type=float, default=0.03, help="difference that matters")
    parser.add_argument("--pairs", type=int, default=3, help="pairs of first calls; 0 for none")
    parser.add_argument("--layers", type=int, default=2)
    parser.add_argument("--hidden", type=int, default=64)
    parser.add_argument("--batch", type=int, default=4)
    parser.add_argument("--length", type=int, default=64)
    parser.add_argument("--dtype", default="float32", choices=("float32", "bfloat16"))
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--fail-above", type=float, default=1.05, metavar="RATIO")
    parser.add_argument("--fail-first-above", type=float, default=1.5, metavar="RATIO")
    parser.add_argument("--child", choices=tuple(SPECIFICATIONS), help=argparse.SUPPRESS)
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
