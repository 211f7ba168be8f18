"""Reports: from a program to its graphs, segments and fusion regions, each with scripts.

| module | noun |
|---|---|
| `program` | `fx_report`, `FXReport`: a program's graphs and breaks |
| `capture`, `break_reason`, `operator_counts` | what Dynamo shows of it |
| `fx_graph` | `FXGraphReport`: one Dynamo graph |
| `graph_report`, `torch_graph_report` | what every level can do: write, run, check, time |
| `segment`, `segment_compile` | `analyze_thunder_splits`: a graph as thunder cut and compiled it |
| `fusion`, `fusion_specification` | `ThunderFusionReport`: one region of one executor |
| `partition_inputs`, `window_offsets` | what segments and fusions are called with |
| `whole_program`, `repro_tree`, `program_arguments` | helpers that go through a whole program |
| `report_run`, `region_record`, `benchmark_report` | its benchmark: run, records and JSON |
| `region_table` | its benchmark as a table |
| `page`, `page_builder`, `page_timings` | what is on the HTML page, made from reports |
| `kernel_code`, `highlighting`, `page_view`, `html` | its code, colours, rows, and the file |
| `contestants`, `display` | who is compared; what a terminal shows |
| `replay`, `loaded_script` | regions without the model, run again elsewhere |
| `comparison`, `speed_change` | what changed between two reports |
| `reported_graph`, `scripts`, `timed_script` | a graph as a script |
| `example_inputs`, `benchmarking` | recorded inputs made again; checked and timed runs |
"""

from thunder.dynamo.report.benchmark_report import BenchmarkReport as BenchmarkReport
from thunder.dynamo.report.benchmark_report import read_report as read_report
from thunder.dynamo.report.break_reason import BreakReason as BreakReason
from thunder.dynamo.report.comparison import Change as Change
from thunder.dynamo.report.comparison import RegionChange as RegionChange
from thunder.dynamo.report.comparison import ReportComparison as ReportComparison
from thunder.dynamo.report.comparison import compare_reports as compare_reports
from thunder.dynamo.report.fusion import ThunderFusionReport as ThunderFusionReport
from thunder.dynamo.report.fx_graph import FXGraphReport as FXGraphReport
from thunder.dynamo.report.loaded_script import LoadedScript as LoadedScript
from thunder.dynamo.report.loaded_script import load_script as load_script
from thunder.dynamo.report.program import FXReport as FXReport
from thunder.dynamo.report.program import fx_report as fx_report
from thunder.dynamo.report.region_record import Finding as Finding
from thunder.dynamo.report.region_record import Level as Level
from thunder.dynamo.report.region_record import RegionRecord as RegionRecord
from thunder.dynamo.report.replay import run_replay as run_replay
from thunder.dynamo.report.replay import save_replay as save_replay
from thunder.dynamo.report.repro_tree import save_failing_repros as save_failing_repros
from thunder.dynamo.report.repro_tree import save_thunderfx_repros as save_thunderfx_repros
from thunder.dynamo.report.segment import ThunderFXGraphReport as ThunderFXGraphReport
from thunder.dynamo.report.segment import ThunderSplitGraphReport as ThunderSplitGraphReport
from thunder.dynamo.report.segment import analyze_thunder_splits as analyze_thunder_splits
from thunder.dynamo.report.whole_program import (
    get_thunder_fxgraph_reports as get_thunder_fxgraph_reports,
)
from thunder.dynamo.report.whole_program import make_nvfusion_reports as make_nvfusion_reports
from thunder.dynamo.report.whole_program import (
    thunderfx_benchmark_report as thunderfx_benchmark_report,
)
