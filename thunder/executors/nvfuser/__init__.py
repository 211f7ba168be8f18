"""The `nvfuser` executor: regions of ATen graphs as nvFuser fusions, on CUDA.

| module | noun |
|---|---|
| `executor` | what the pipeline sees |
| `operators`, `lowerings/` | the table of supported operators, by family |
| `checks` | whether a node can be translated |
| `outputs` | what nvFuser returns and what ATen adds to it |
| `translate`, `builder`, `layout` | graph to definition |
| `definition`, `build`, `source` | a fusion as data, as nvFuser's object, as Python source |
| `region`, `variant` | what runs |
| `library` | the one import of `nvfuser_direct` |
| `dtypes`, `sizes`, `descriptors` | dtypes, symbolic sizes and strides in nvFuser's terms |
"""

from thunder.executors.nvfuser.executor import NvFuserExecutor as NvFuserExecutor
from thunder.executors.nvfuser.library import available as available
from thunder.executors.nvfuser.operators import SupportedOperator as SupportedOperator
from thunder.executors.nvfuser.operators import supported_operators as supported_operators
from thunder.executors.nvfuser.region import NvFuserRegion as NvFuserRegion
from thunder.executors.nvfuser.source import FusionSource as FusionSource

__all__ = [
    "FusionSource",
    "NvFuserExecutor",
    "NvFuserRegion",
    "SupportedOperator",
    "available",
    "supported_operators",
]
