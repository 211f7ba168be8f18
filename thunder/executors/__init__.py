"""Executors claim ATen nodes and run them.

| module | noun |
|---|---|
| `base` | what an executor is; `OperatorExecutor` for a table of a user's |
| `registry` | executors by name |
| `entrants` | lists of executors between which `executors="auto"` chooses |
| `grouping` | nodes that can be compiled as one |
| `kernel_origins` | which nodes a kernel computes |
| `partition` | nodes shared out between executors, as regions and single nodes |
| `aten` | op by op |
| `inductor` | fusion by TorchInductor |
| `nvfuser` | fusion by nvFuser, on CUDA |
"""

from thunder.executors.base import AbstractExecutor as AbstractExecutor
from thunder.executors.base import AbstractFusionExecutor as AbstractFusionExecutor
from thunder.executors.base import OperatorExecutor as OperatorExecutor
from thunder.executors.base import Refusal as Refusal
from thunder.executors.base import RegionContext as RegionContext
from thunder.executors.registry import deregister_executor as deregister_executor
from thunder.executors.registry import get_executor as get_executor
from thunder.executors.registry import known_executors as known_executors
from thunder.executors.registry import register_executor as register_executor
from thunder.executors.registry import resolve_executors as resolve_executors
