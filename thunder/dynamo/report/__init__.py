"""Reports: from a program to its graphs, segments and fusion regions, each with scripts.

| module | noun |
|---|---|
| `program` | `fx_report`, `FXReport`: a program's graphs and breaks |
| `capture`, `break_reason`, `operator_counts` | what Dynamo shows of it |
| `fx_graph` | `FXGraphReport`: one Dynamo graph |
| `graph_report`, `torch_graph_report` | what every level can do: write, run, check, time |
| `segment`, `segment_compile` | `analyze_thunder_splits`: a graph as thunder cut and compiled it |
| `fusion`, `fusion_specification` | `ThunderFusionReport`: one region of one executor |
| `partition_inputs` | what segments and fusions are called with |
| `reported_graph`, `scripts`, `timed_script` | a graph as a script |
| `example_inputs`, `benchmarking` | recorded inputs made again; checked and timed runs |
"""

from thunder.dynamo.report.break_reason import BreakReason as BreakReason
from thunder.dynamo.report.fusion import ThunderFusionReport as ThunderFusionReport
from thunder.dynamo.report.fx_graph import FXGraphReport as FXGraphReport
from thunder.dynamo.report.program import FXReport as FXReport
from thunder.dynamo.report.program import fx_report as fx_report
from thunder.dynamo.report.segment import ThunderFXGraphReport as ThunderFXGraphReport
from thunder.dynamo.report.segment import ThunderSplitGraphReport as ThunderSplitGraphReport
from thunder.dynamo.report.segment import analyze_thunder_splits as analyze_thunder_splits
