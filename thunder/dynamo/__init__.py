"""The entry points and the torch.compile backend.

In the order in which a program passes through:

| module | noun |
|---|---|
| `thunderfx`, `jit` | the entry points |
| `options` | keywords, divided between torch.compile and `ThunderCompiler` |
| `compiled_module` | the stand-in for modules |
| `isolation` | calls of torch.compile kept apart |
| `backend` | `torch.compile(f, backend="thunder")` |
| `compiler` | `ThunderCompiler` |
| `support`, `splitter` | what leaves the thunder regions, and how the graph is cut |
| `subgraph_info` | what became of one Dynamo graph |
| `inspection`, `lookup` | the helpers, and the compiler behind a callable |
| `graph_module`, `graph_break` | `jit` of fx graphs, and its error |
"""

from thunder.dynamo.compiler import ThunderCompiler as ThunderCompiler
from thunder.dynamo.inspection import compile_stats as compile_stats
from thunder.dynamo.inspection import get_subgraph_info as get_subgraph_info
from thunder.dynamo.inspection import last_backward_traces as last_backward_traces
from thunder.dynamo.inspection import last_prologue_traces as last_prologue_traces
from thunder.dynamo.inspection import last_traces as last_traces
from thunder.dynamo.inspection import save_reproducer as save_reproducer
from thunder.dynamo.jit import jit as jit
from thunder.dynamo.subgraph_info import SubgraphInfo as SubgraphInfo
from thunder.dynamo.thunderfx import thunderfx as thunderfx
