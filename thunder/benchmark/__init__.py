"""Benchmarks: contestants checked against eager, then timed so that the verdict holds.

| module | noun |
|---|---|
| `runner` | `benchmark`, a program and its contestants, correctness before speed |
| `specifications`, `inductor` | ways to compile |
| `timers`, `profiling` | ways to time |
| `comparing` | `compare_speed`, contestants that are known to work |
| `interleaving` | rounds in random order |
| `statistics` | ratios, intervals, verdicts |
| `correctness` | what eager and float64 give |
| `program`, `inputs`, `writes` | a callable, its inputs, and what it writes to |
| `workload` | what one timed call does |
| `records` | results that print and go to JSON |
| `progress` | signs of life |
"""

from thunder.benchmark.comparing import SpeedResult as SpeedResult
from thunder.benchmark.comparing import compare_speed as compare_speed
from thunder.benchmark.inputs import Inputs as Inputs
from thunder.benchmark.program import Compute as Compute
from thunder.benchmark.progress import ProgressEvent as ProgressEvent
from thunder.benchmark.progress import ProgressHook as ProgressHook
from thunder.benchmark.progress import RichProgress as RichProgress
from thunder.benchmark.progress import Step as Step
from thunder.benchmark.records import BenchmarkResult as BenchmarkResult
from thunder.benchmark.records import Comparison as Comparison
from thunder.benchmark.records import Failure as Failure
from thunder.benchmark.records import Measurement as Measurement
from thunder.benchmark.records import Outcome as Outcome
from thunder.benchmark.records import Status as Status
from thunder.benchmark.records import Verdict as Verdict
from thunder.benchmark.records import read_results as read_results
from thunder.benchmark.runner import benchmark as benchmark
from thunder.benchmark.specifications import (
    AbstractCompileSpecification as AbstractCompileSpecification,
)
from thunder.benchmark.specifications import (
    ThunderCompileSpecification as ThunderCompileSpecification,
)
from thunder.benchmark.specifications import TorchCompileSpecification as TorchCompileSpecification
from thunder.benchmark.specifications import TorchEagerSpecification as TorchEagerSpecification
from thunder.benchmark.specifications import (
    TorchInductorSpecification as TorchInductorSpecification,
)
from thunder.benchmark.statistics import Estimate as Estimate
from thunder.benchmark.statistics import Settings as Settings
from thunder.benchmark.statistics import compare_separate_runs as compare_separate_runs
from thunder.benchmark.statistics import verdict as verdict
from thunder.benchmark.timers import AbstractTimer as AbstractTimer
from thunder.benchmark.timers import KernelTime as KernelTime
from thunder.benchmark.timers import WallTime as WallTime
from thunder.benchmark.timers import WallTimeWithMemoryUsage as WallTimeWithMemoryUsage
from thunder.benchmark.workload import Workload as Workload
