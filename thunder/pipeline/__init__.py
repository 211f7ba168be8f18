"""From a torch-level graph to something that runs.

In the order in which a graph passes through:

| module | noun |
|---|---|
| `options` | what was asked for |
| `region` | `CompiledRegion`, the result |
| `aot` | the adapter to AOTAutograd |
| `returned_inputs` | what AOTAutograd of older torch gets wrong |
| `fallback` | plainer ways when one fails |
| `contest`, `verdicts`, `graph_key` | which executors run a graph: measured, kept, found again |
| `lowering` | transforms, claims, regions, code |
| `first_run` | the watched first run |
| `check_trace`, `judged_run` | each stage run against the one before |
| `prologue` | the checks under which a graph is used |
| `stats` | what it cost |
"""

from thunder.pipeline.options import CompileOptions as CompileOptions
from thunder.pipeline.region import CompiledRegion as CompiledRegion
from thunder.pipeline.stats import CompileStats as CompileStats
