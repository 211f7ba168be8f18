"""thunder: a torch.compile front end that shows its work.

    from thunder import thunderfx

    tfoo = thunderfx(foo)            # or a module, or as a decorator
    tfoo(x)
    print(thunder.last_traces(tfoo)[-1])

| to | use |
|---|---|
| compile | `thunderfx`, `jit`, `ThunderCompiler` |
| look | `last_traces`, `last_backward_traces`, `last_prologue_traces`, `get_subgraph_info`, `compile_stats` |
| hand over | `save_reproducer` |
| extend | `thunder.executors`, `thunder.transforms`, `thunder.debug` |
| query | `thunder.examine` |
"""  # noqa: E501 (a table row)

from thunder.debug import follow_process, parse_environment
from thunder.environment import check_environment

check_environment()
parse_environment()
follow_process()

from thunder import debug as debug
from thunder import dynamo as dynamo
from thunder import examine as examine
from thunder import executors as executors
from thunder import transforms as transforms
from thunder.dynamo import ThunderCompiler as ThunderCompiler
from thunder.dynamo import compile_stats as compile_stats
from thunder.dynamo import get_subgraph_info as get_subgraph_info
from thunder.dynamo import jit as jit
from thunder.dynamo import last_backward_traces as last_backward_traces
from thunder.dynamo import last_prologue_traces as last_prologue_traces
from thunder.dynamo import last_traces as last_traces
from thunder.dynamo import save_reproducer as save_reproducer
from thunder.dynamo import thunderfx as thunderfx
