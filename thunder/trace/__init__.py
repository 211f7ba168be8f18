"""Traces: fx graphs with provenance that print themselves as runnable Python.

| module | noun |
|---|---|
| `trace` | `TraceCtx`, one stage of one graph |
| `printer` | a graph as a Python program |
| `literals` | values as source text |
| `operators` | which module defines an operator |
| `source_lines` | the user's line behind a node |
| `tensor_spec` | one-line descriptions of values |
| `communication` | which nodes talk to other ranks |
| `targets` | fusion regions and claimed operators, which nodes call |
| `liveness` | when values die |
| `bound_symbol` | a read view for inspection |
| `copying` | copies of graph modules |
| `accuracy` | judging a result by its distance from float64 |
| `float64` | running a program in float64 |
"""

from thunder.trace.bound_symbol import BoundSymbol as BoundSymbol
from thunder.trace.bound_symbol import Symbol as Symbol
from thunder.trace.source_lines import SourceLine as SourceLine
from thunder.trace.targets import ClaimedOperator as ClaimedOperator
from thunder.trace.targets import FusedRegion as FusedRegion
from thunder.trace.trace import Direction as Direction
from thunder.trace.trace import Provenance as Provenance
from thunder.trace.trace import TraceCtx as TraceCtx
