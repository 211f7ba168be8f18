"""Queries on traces: what was fused, and how."""

from thunder.examine.fusions import get_fusion_symbols as get_fusion_symbols
from thunder.examine.fusions import get_fusions as get_fusions
