"""Transforms: named functions from fx graph to fx graph.

| module | noun |
|---|---|
| `base` | what a transform is; `as_transform` for plain functions |
| `pipeline` | runs them and records provenance |
| `attention_mask` | attention masks known to be causal or all true, in their native form |
| `attention_backend` | which of torch's attention kernels runs |
| `grouped_query` | repeated keys and values of attention, in their native form |
| `dead_code_elimination` | nodes that nobody uses |
"""

from thunder.transforms.attention_backend import (
    AttentionBackendTransform as AttentionBackendTransform,
)
from thunder.transforms.attention_mask import AttentionMaskTransform as AttentionMaskTransform
from thunder.transforms.base import AbstractTransform as AbstractTransform
from thunder.transforms.base import FunctionTransform as FunctionTransform
from thunder.transforms.base import Stage as Stage
from thunder.transforms.base import as_transform as as_transform
from thunder.transforms.pipeline import DEFAULT_TRANSFORMS as DEFAULT_TRANSFORMS
from thunder.transforms.pipeline import run_transforms as run_transforms
