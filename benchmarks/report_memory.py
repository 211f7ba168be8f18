"""How much memory a benchmark report of a large model takes, beside the model itself.

The model is layers of one weight each with a graph break after each, so that every layer is a graph
of its own. What counts is the peak of a fresh process that makes the model, reports and benchmarks
it, less the peak of a process that does the same with a model of next to no weights: imports,
compilers and code are the same in both. On a CUDA device it is the allocator's peak.

    python benchmarks/report_memory.py
    python benchmarks/report_memory.py --gigabytes 2 --train
"""

from __future__ import annotations

import argparse
import os
import resource
import subprocess
import sys
import tempfile

os.environ.setdefault("OMP_NUM_THREADS", "1")

import torch
from torch import nn

from thunder.benchmark import Settings, TorchCompileSpecification
from thunder.dynamo.report import thunderfx_benchmark_report
from thunder.environment import environment_report

GIGABYTE = 1 << 30
LAYERS = 8


class Layers(nn.Module):
    """Matrix multiplications with graph breaks between them."""

    def __init__(self, width: int, device: str) -> None:
        super().__init__()
        layers = (nn.Linear(width, width, bias=False, device=device) for _ in range(LAYERS))
        self.layers = nn.ModuleList(layers)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Computes all layers; Dynamo runs a function with a break in a loop uncompiled."""
        layers = self.layers
        x = layers[0](x).relu()
        torch._dynamo.graph_break()
        x = layers[1](x).relu()
        torch._dynamo.graph_break()
        x = layers[2](x).relu()
        torch._dynamo.graph_break()
        x = layers[3](x).relu()
        torch._dynamo.graph_break()
        x = layers[4](x).relu()
        torch._dynamo.graph_break()
        x = layers[5](x).relu()
        torch._dynamo.graph_break()
        x = layers[6](x).relu()
        torch._dynamo.graph_break()
        return layers[7](x).relu()


def main() -> int:
    """Measures both processes and returns 1 when the large one takes too much."""
    options = _options()
    if options.width is not None:
        print(peak(options))
        return 0
    print(environment_report().headline())
    width = int((options.gigabytes * GIGABYTE / 4 / LAYERS) ** 0.5)
    weights = 4 * LAYERS * width**2
    small, large = _peak_of_process(8), _peak_of_process(width)
    ratio = (large - small) / weights
    kind = "training" if options.train else "inference"
    print(
        f"{kind}, {LAYERS} graphs: weights {weights / GIGABYTE:.2f} GiB, peak "
        f"{large / GIGABYTE:.2f} GiB, without weights {small / GIGABYTE:.2f} GiB: {ratio:.2f} x"
    )
    return 0 if ratio <= options.fail_above else 1


def peak(options: argparse.Namespace) -> int:
    """Reports a model and returns the peak of this process, in bytes.

    Args:
        options: What the command line asks for.
    """
    model = Layers(options.width, options.device)
    x = torch.randn(4, options.width, device=options.device)
    with tempfile.TemporaryDirectory() as folder, torch.set_grad_enabled(options.train):
        report = thunderfx_benchmark_report(
            model,
            folder,
            x,
            thunder_options={"executors": options.executors.split(",")},
            against=[TorchCompileSpecification(backend="eager")],
            settings=Settings(seconds=0.2),
            show=False,
        )
    graphs = [region for region in report.regions if region.level.value == "graph"]
    assert len(graphs) == LAYERS
    assert not [region for region in graphs if region.failure or not region.result]
    if options.device.startswith("cuda"):
        return torch.cuda.max_memory_allocated(options.device)
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


def _peak_of_process(width: int) -> int:
    command = [sys.executable, __file__, *sys.argv[1:], "--width", str(width)]
    ended = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True)
    return int(ended.stdout.split()[-1])


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--gigabytes", type=float, default=1.0, help="of weights")
    parser.add_argument("--train", action="store_true", help="forward and backward")
    parser.add_argument("--executors", default="aten", help="names, separated by commas")
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--fail-above", type=float, default=1.3, metavar="RATIO")
    parser.add_argument("--width", type=int, help=argparse.SUPPRESS)
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
