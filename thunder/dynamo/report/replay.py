"""Replays: a folder with what is needed to run, check and time every region without the model.

Each region is one script: graph, inputs, ways to compile, options. A manifest lists them. Running
a replay gives a report like that of the program itself, so two replays, of two versions of torch
say, can be compared.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from thunder.benchmark import (
    AbstractCompileSpecification,
    AbstractTimer,
    ProgressHook,
    Settings,
    WallTime,
)
from thunder.dynamo.report.benchmark_report import FILE_NAME, BenchmarkReport
from thunder.dynamo.report.contestants import DEFAULT_AGAINST, contest
from thunder.dynamo.report.display import shown_report, task
from thunder.dynamo.report.graph_report import Folder
from thunder.dynamo.report.loaded_script import load_script
from thunder.dynamo.report.region_record import RegionRecord
from thunder.dynamo.report.report_run import failure_of, place_of
from thunder.dynamo.report.scripts import benchmark_script
from thunder.dynamo.report.segment import analyze_thunder_splits
from thunder.environment import environment_report
from thunder.errors import ReproducerError
from thunder.repro import make_folder, write_text

if TYPE_CHECKING:  # a program's report has a method that calls this module
    from thunder.dynamo.report.program import FXReport

FORMAT = "thunder replay 1"
MANIFEST = "replay.json"
CONFIDENCE = 0.99


def save_replay(
    captured: FXReport,
    folder: Folder,
    *,
    thunder_options: Mapping[str, Any] | None = None,
    against: Sequence[AbstractCompileSpecification] = DEFAULT_AGAINST,
    fusions: bool = True,
    serialize_inputs: bool = False,
) -> Path:
    """Writes a replay of a captured program.

    Args:
        captured: The program.
        folder: Where to; made when missing.
        thunder_options: Keywords of `ThunderCompiler`.
        against: What thunder is compared with, the baseline first.
        fusions: Whether to go down to fusions.
        serialize_inputs: Keep the real inputs, instead of drawing such inputs.

    Returns:
        The manifest's path.

    Raises:
        ReproducerError: A file cannot be written.
        Exception: What compiling a graph raises.
    """
    root = make_folder(folder)
    records = []
    for graph in captured.fx_graph_reports:
        compiled = analyze_thunder_splits(graph, **(thunder_options or {}))
        for report in compiled.regions(fusions=fusions):
            compared = contest(report, against)
            script = benchmark_script(
                report.reported,
                list(compared.contestants.values()),
                WallTime(),
                Settings(confidence=CONFIDENCE),
                store_inputs=serialize_inputs,
            )
            path = script.write(root / place_of(report) / f"{report.name}.py")
            name = path.relative_to(root).as_posix()
            records.append(replace(compared.record, scripts=(name,)))
    report = BenchmarkReport(
        program=captured.program,
        environment=environment_report().as_dict(),
        breaks=[reason.to_json() for reason in captured.dynamo_break_reasons],
        regions=tuple(records),
    )
    data = {**report.to_json(), "replay": FORMAT}
    return write_text(root / MANIFEST, json.dumps(data, indent=1) + "\n")


def run_replay(
    folder: Folder,
    *,
    time_fn: AbstractTimer | None = None,
    settings: Settings | None = None,
    show: bool = True,
) -> BenchmarkReport:
    """Runs, checks and times every region of a replay, and writes a `report.json` beside it.

    Args:
        folder: What `save_replay` wrote; it may have been moved to another machine.
        time_fn: How to time; wall time by default.
        settings: Confidence, threshold and time of each comparison.
        show: Whether to show progress and, at the end, the table.

    Returns:
        The report. What cannot be run here is in it as a failure.

    Raises:
        ReproducerError: The folder holds no replay.
    """
    root = Path(folder)
    saved = read_manifest(root)
    settings = settings or Settings(confidence=CONFIDENCE)
    regions: list[RegionRecord] = []
    interrupted = False
    with shown_report(show) as display:
        try:
            for record in saved.regions:
                with task(display, record.name) as hook:
                    regions.append(_replayed(root, record, time_fn, settings, hook))
                result = regions[-1].result
                if result is not None and result.interrupted:
                    interrupted = True
                    break
        except KeyboardInterrupt:
            interrupted = True
        report = replace(
            saved,
            environment=environment_report().as_dict(),
            regions=tuple(regions),
            interrupted=interrupted,
        )
        report.save_json(root / FILE_NAME)
        display.report = report
    return report


def read_manifest(folder: str | os.PathLike[str]) -> BenchmarkReport:
    """Reads the manifest of a replay: a report without results.

    Args:
        folder: The replay.

    Raises:
        ReproducerError: The folder holds no replay.
        BenchmarkError: The manifest is damaged.
    """
    file = Path(folder) / MANIFEST
    try:
        data = json.loads(file.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise ReproducerError(f"{folder} holds no replay: {file.name} cannot be read") from error
    if not isinstance(data, dict) or data.get("replay") != FORMAT:
        raise ReproducerError(f"{file} is no manifest of this version ({FORMAT})")
    return BenchmarkReport.from_json(data)


def _replayed(
    root: Path,
    record: RegionRecord,
    timer: AbstractTimer | None,
    settings: Settings,
    progress: ProgressHook,
) -> RegionRecord:
    (name,) = record.scripts
    path = (root / name).resolve()
    if not path.is_relative_to(root.resolve()):
        raise ReproducerError(f"{name} leads out of the replay's folder")
    try:
        script = load_script(path)
        result = script.benchmark(
            script.specifications, timer=timer, settings=settings, progress=progress
        )
    except Exception as error:  # noqa: BLE001 - what cannot run here is a result
        return replace(record, failure=failure_of(error))
    return replace(record, result=result)
