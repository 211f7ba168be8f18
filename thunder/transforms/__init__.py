"""Transforms: named functions from fx graph to fx graph.

| module | noun |
|---|---|
| `base` | what a transform is; `as_transform` for plain functions |
| `pipeline` | runs them and records provenance |
| one file a pass | |
"""

from thunder.transforms.base import AbstractTransform as AbstractTransform
from thunder.transforms.base import FunctionTransform as FunctionTransform
from thunder.transforms.base import Stage as Stage
from thunder.transforms.base import as_transform as as_transform
from thunder.transforms.pipeline import DEFAULT_TRANSFORMS as DEFAULT_TRANSFORMS
from thunder.transforms.pipeline import run_transforms as run_transforms
