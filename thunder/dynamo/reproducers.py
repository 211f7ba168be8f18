"""Scripts for compiled regions: what `save_reproducer` writes."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Any

from thunder.dynamo.subgraph_info import SubgraphInfo
from thunder.errors import NotCompiledError
from thunder.pipeline.options import CompileOptions
from thunder.pipeline.region import CompiledRegion
from thunder.repro import (
    EAGER,
    ReproScript,
    ScriptKind,
    make_folder,
    module_source,
    thunderfx_source,
    torch_compile_source,
)


def save_reproducers(
    infos: Sequence[SubgraphInfo],
    folder: str | os.PathLike[str],
    *,
    use_pytest_benchmark: bool,
    serialize_inputs: bool,
) -> list[Path]:
    """Writes a script for each thunder region.

    Args:
        infos: The compiled graphs, in order.
        folder: Where to write; made when missing.
        use_pytest_benchmark: Compare thunder, torch.compile and eager with pytest-benchmark.
        serialize_inputs: Save the real inputs beside each script.

    Returns:
        The scripts.

    Raises:
        NotCompiledError: Nothing has been compiled yet.
        ReproducerError: A file cannot be written.
    """
    if not infos:
        raise NotCompiledError(
            "nothing has been compiled yet, so there is nothing to reproduce: call the compiled "
            "function first. If it has been called, torch left all of it to eager; "
            "TORCH_LOGS=+dynamo says why"
        )
    target = make_folder(folder)
    written: list[Path] = []
    for index, info in enumerate(infos):
        for region in (*info.thunder_compiled_fns, *info.failed_regions):
            script = region_script(
                region,
                title=f"Dynamo graph {index}, region {region.name}",
                split_reasons=tuple(str(reason) for reason in info.split_reasons),
                benchmark=use_pytest_benchmark,
                serialize_inputs=serialize_inputs,
            )
            kind = "benchmark" if use_pytest_benchmark else "repro"
            written.append(script.write(target / f"graph{index}_{region.name}_{kind}.py"))
    return written


def region_script(
    region: CompiledRegion,
    *,
    title: str,
    split_reasons: tuple[str, ...] = (),
    benchmark: bool = False,
    serialize_inputs: bool = False,
    changed_options: Mapping[str, Any] = MappingProxyType({}),
) -> ReproScript:
    """Returns the script of one region.

    Args:
        region: The region.
        title: What it is, in one line.
        split_reasons: Why its graph was cut.
        benchmark: Compare thunder, torch.compile and eager.
        serialize_inputs: Keep the real inputs beside the script.
        changed_options: Options that the script has in place of the user's.
    """
    thunder = thunderfx_source({**user_options(region.options), **changed_options})
    return ReproScript(
        title=title,
        module=module_source(region.graph_module, store_values=serialize_inputs),
        inputs=region.inputs,
        compilers=(thunder, torch_compile_source(), EAGER) if benchmark else (thunder,),
        kind=ScriptKind.BENCHMARK if benchmark else ScriptKind.RUN,
        store_inputs=serialize_inputs,
        split_reasons=split_reasons,
    )


def user_options(options: CompileOptions) -> Mapping[str, Any]:
    """Returns the keywords that give these options to `thunderfx`, without the defaults.

    Args:
        options: The options of a compile.
    """
    written: dict[str, Any] = {}
    if options.requested_executors != "auto":
        requested = options.requested_executors
        written["executors"] = requested if isinstance(requested, str) else list(requested)
    if options.transforms:
        written["transforms"] = [transform.as_written() for transform in options.transforms]
    if options.exclude_ops:
        written["exclude_ops"] = list(options.exclude_ops)
    if options.contest != "cached":
        written["contest"] = options.contest
    if options.inductor_config:
        written["options"] = dict(options.inductor_config)
    if options.on_failure != "fallback":
        written["on_failure"] = options.on_failure
    return written
