"""Compiles a small Hugging Face language model with thunderfx, trains it, checks it, opens it up.

The weights are random and come from a config, so nothing is downloaded. Everything shown is also
written to a folder. The exit status is 1 when a check against eager fails.

    make demo
    make demo ARGS='--steps 50 --rounds 100'
"""

from __future__ import annotations

import argparse
import copy
import itertools
import math
import os
import re
import statistics
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

os.environ.setdefault("HF_HUB_OFFLINE", "1")

import torch
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, SpinnerColumn, TextColumn
from rich.rule import Rule
from rich.syntax import Syntax
from rich.table import Table
from torch import nn
from transformers import LlamaConfig, LlamaForCausalLM

import thunder
from thunder.dynamo import get_subgraph_info, save_reproducer
from thunder.environment import environment_report

VOCABULARY = 128
BATCH, LENGTH = 4, 64
TOLERANCE = 1e-4
"""Largest relative distance from eager that passes; float32 rounding stays well below it."""

KINDS = {
    "argument": re.compile(r"    \w+,  # "),
    "value": re.compile(r"    #   \w+: "),
    "fused": re.compile(r"    #    "),
    "other": re.compile(""),
}
"""The kinds of lines of a printed trace; the first that matches counts."""
EXCERPT = {"argument": (3, 1), "value": (3, 1), "fused": (16, 6), "other": (30, 10)}
"""How many lines of a long run are shown: the first, the last."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Check:
    """One comparison with eager: the distance, relative to the size of eager's values."""

    what: str
    distance: float

    @property
    def passed(self) -> bool:
        """Whether the distance is within the tolerance (NaN is not)."""
        return self.distance <= TOLERANCE


def main() -> int:
    """Runs the demo and returns the exit status."""
    options = _options()
    console = Console(width=None if sys.stdout.isatty() else 100, highlight=False)
    try:
        checks = run(options, console)
    except KeyboardInterrupt:
        console.print(f"\nStopped. What was written so far is in {options.output}/")
        return 130
    return 0 if all(check.passed for check in checks) else 1


def run(options: argparse.Namespace, console: Console) -> list[Check]:
    """Goes through the chapters of the demo and returns the checks made on the way."""
    torch.manual_seed(0)
    options.output.mkdir(parents=True, exist_ok=True)
    eager = small_model().to(options.device)
    compiled = thunder.thunderfx(copy.deepcopy(eager))
    reference = torch.compile(copy.deepcopy(eager))
    size = sum(parameter.numel() for parameter in eager.parameters())
    console.print(environment_report().headline())
    console.print(f"{type(eager).__name__}, {size:,} random parameters, on {options.device}")

    _chapter(console, "Training, compared with eager")
    checks = train(eager, compiled, options, console)
    show_checks(checks, console)
    _chapter(console, "The forward trace that ran")
    show_traces(compiled, options.output, console)
    _chapter(console, "Graphs and splits")
    show_splits(compiled, options.output, console)
    _chapter(console, "Time against eager and torch.compile")
    models = {"eager": eager, "torch.compile": reference, "thunderfx": compiled}
    show_timings(models, options, console)
    _chapter(console, "Reproducers")
    show_reproducers(compiled, options.output, console)
    return checks


def small_model() -> nn.Module:
    """Returns a two-layer Llama with random weights."""
    config = LlamaConfig(
        vocab_size=VOCABULARY,
        hidden_size=128,
        intermediate_size=256,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        max_position_embeddings=LENGTH,
        use_cache=False,
    )
    return LlamaForCausalLM(config)


def batches(device: str) -> Iterator[torch.Tensor]:
    """Yields token batches of shape (BATCH, LENGTH): counting from random starts, learnable."""
    generator = torch.Generator().manual_seed(1)
    while True:
        starts = torch.randint(VOCABULARY, (BATCH, 1), generator=generator)
        yield ((starts + torch.arange(LENGTH)) % VOCABULARY).to(device)


def train(
    eager: nn.Module, compiled: nn.Module, options: argparse.Namespace, console: Console
) -> list[Check]:
    """Trains both models on the same batches and compares losses, gradients and weights."""
    models = (eager, compiled)
    optimizers = [torch.optim.AdamW(model.parameters(), lr=3e-3) for model in models]
    tokens = batches(options.device)
    checks: list[Check] = []
    with _progress(console) as progress:
        task = progress.add_task("the first step compiles", total=options.steps)
        for step in range(1, options.steps + 1):
            batch = next(tokens)
            losses = [forward_backward(model, batch) for model in models]
            if step == 1:
                checks.append(Check(what="first loss", distance=_distance(*losses)))
                checks.append(Check(what="first gradients", distance=_gradient_distance(*models)))
            for optimizer in optimizers:
                optimizer.step()
            shown = f"loss {losses[0]:.4f} eager, {losses[1]:.4f} thunderfx"
            progress.update(task, advance=1, description=shown)
            if not console.is_terminal:
                console.print(f"step {step:>2}/{options.steps}  {shown}")
    checks.append(Check(what="last loss", distance=_distance(*losses)))
    return checks


def forward_backward(model: nn.Module, batch: torch.Tensor) -> torch.Tensor:
    """Runs one training step up to the gradients and returns the loss."""
    model.zero_grad(set_to_none=True)
    loss = model(input_ids=batch, labels=batch).loss
    loss.backward()
    return loss.detach()


def show_checks(checks: list[Check], console: Console) -> None:
    """Prints each comparison with its number and verdict."""
    table = Table("compared with eager", "largest relative distance", "allowed", "verdict")
    for check in checks:
        verdict = "[green]equal" if check.passed else "[bold red]DIFFERENT"
        table.add_row(check.what, f"{check.distance:.1e}", f"{TOLERANCE:.0e}", verdict)
    console.print(table)


def show_traces(compiled: Callable[..., object], output: Path, console: Console) -> None:
    """Saves the traces that ran, forward and backward, and prints the first forward one."""
    forward = thunder.last_traces(compiled)
    backward = thunder.last_backward_traces(compiled)
    for direction, traces in (("forward", forward), ("backward", backward)):
        for index, trace in enumerate(traces):
            trace.save(output / f"{direction}_trace_{index}.py")
    excerpt = shorten(forward[0].python(), console.width)
    console.print(Syntax(excerpt, "python", background_color="default"))
    console.print(
        f"{len(forward)} forward and {len(backward)} backward traces, whole: {output}/*_trace_*.py"
    )


def shorten(program: str, width: int) -> str:
    """Returns the main function, with long runs of lines of one kind cut short.

    Args:
        program: A printed trace: its main function comes first.
        width: The longest line to show.
    """
    start = program.index("def ")
    main_function, _, rest = program[start:].partition("\n\n\n")
    shown: list[str] = []
    for kind, run in itertools.groupby(main_function.splitlines(), key=_kind):
        lines = list(run)
        first, last = EXCERPT[kind]
        if len(lines) > first + last + 1:
            indent = " " * (len(lines[0]) - len(lines[0].lstrip()))
            left_out = f"{indent}# ... {len(lines) - first - last} lines more ..."
            lines = [*lines[:first], left_out, *lines[-last:]]
        shown += [line if len(line) <= width else f"{line[: width - 1]}…" for line in lines]
    if rest:
        shown.append(f"\n# ... {len(rest.splitlines())} lines more let it run by itself ...")
    return "\n".join(shown)


def _kind(line: str) -> str:
    return next(kind for kind, pattern in KINDS.items() if pattern.match(line))


def show_splits(compiled: Callable[..., object], output: Path, console: Console) -> None:
    """Prints what became of each graph that Dynamo captured."""
    summary = "\n".join(map(str, get_subgraph_info(compiled)))
    (output / "splits.txt").write_text(summary + "\n")
    console.print(summary, markup=False)


def show_timings(
    models: Mapping[str, nn.Module], options: argparse.Namespace, console: Console
) -> None:
    """Times the models in turns, so that a busy machine slows all of them alike."""
    batch = next(batches(options.device))
    works = {"training step": forward_backward, "inference": infer}
    table = Table("milliseconds, median (ratio to eager)", *models)
    with _progress(console) as progress:
        for title, work in works.items():
            task = progress.add_task(title, total=options.rounds)
            for model in models.values():
                measure(work, model, batch)  # compiles what has not been compiled
            samples: dict[str, list[float]] = {name: [] for name in models}
            for _ in range(options.rounds):
                for name, model in models.items():
                    samples[name].append(measure(work, model, batch))
                progress.advance(task)
            medians = {name: statistics.median(values) for name, values in samples.items()}
            cells = [f"{ms:.2f} ({ms / medians['eager']:.2f}x)" for ms in medians.values()]
            table.add_row(title, *cells)
    console.print(table)


def infer(model: nn.Module, batch: torch.Tensor) -> None:
    """Runs the forward pass without gradients."""
    with torch.no_grad():
        model(input_ids=batch)


def measure(
    work: Callable[[nn.Module, torch.Tensor], object], model: nn.Module, batch: torch.Tensor
) -> float:
    """Returns the milliseconds of one run, device work included."""
    start = time.perf_counter()
    work(model, batch)
    if batch.is_cuda:
        torch.cuda.synchronize(batch.device)
    return (time.perf_counter() - start) * 1e3


def show_reproducers(compiled: Callable[..., object], output: Path, console: Console) -> None:
    """Writes one script a graph and says how to run it."""
    paths = save_reproducer(compiled, output / "reproducers")
    console.print("Each of these runs by itself:")
    for path in paths:
        console.print(f"  {path}", soft_wrap=True)
    python = os.path.relpath(sys.executable)
    console.print(f"For example: {python} {paths[0]} --check_consistency", soft_wrap=True)


def _distance(expected: torch.Tensor, actual: torch.Tensor | None) -> float:
    if actual is None:
        return math.inf
    difference = (actual - expected).abs().max() / expected.abs().max().clamp(min=1e-12)
    return difference.item()


def _gradient_distance(expected: nn.Module, actual: nn.Module) -> float:
    gradients = {name: parameter.grad for name, parameter in actual.named_parameters()}
    return max(
        _distance(parameter.grad, gradients[name])
        for name, parameter in expected.named_parameters()
        if parameter.grad is not None
    )


def _progress(console: Console) -> Progress:
    columns = (SpinnerColumn(), BarColumn(), MofNCompleteColumn(), TextColumn("{task.description}"))
    return Progress(*columns, console=console, disable=not console.is_terminal)


def _chapter(console: Console, title: str) -> None:
    console.print()
    console.print(Rule(title, align="left"))


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--steps", type=_positive, default=20, help="training steps (20)")
    parser.add_argument("--rounds", type=_positive, default=30, help="timed runs of each (30)")
    parser.add_argument("--output", type=Path, default=Path("demo_output"), help="folder to write")
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    return parser.parse_args()


def _positive(text: str) -> int:
    number = int(text)
    if number < 1:
        raise argparse.ArgumentTypeError("give a number of at least 1")
    return number


if __name__ == "__main__":
    sys.exit(main())
