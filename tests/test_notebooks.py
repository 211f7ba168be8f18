"""The notebooks run from top to bottom."""

from __future__ import annotations

from pathlib import Path

import pytest

NEEDED = "notebooks run where the extra `test` is installed, as on every developer's machine"
nbformat = pytest.importorskip("nbformat", reason=NEEDED)
nbclient = pytest.importorskip("nbclient", reason=NEEDED)

NOTEBOOKS = sorted((Path(__file__).parent.parent / "notebooks").glob("*.ipynb"))


@pytest.mark.parametrize("path", NOTEBOOKS, ids=[path.stem for path in NOTEBOOKS])
def test_it_runs(path, tmp_path):
    notebook = nbformat.read(path, as_version=4)
    client = nbclient.NotebookClient(
        notebook, timeout=600, kernel_name="python3", resources={"metadata": {"path": tmp_path}}
    )
    client.execute()
    code = [cell for cell in notebook.cells if cell.cell_type == "code"]
    assert code
    assert all(cell.execution_count for cell in code)
    assert not [o for cell in code for o in cell.outputs if o.output_type == "error"]


@pytest.mark.parametrize("path", NOTEBOOKS, ids=[path.stem for path in NOTEBOOKS])
def test_it_is_kept_without_outputs(path):
    notebook = nbformat.read(path, as_version=4)
    assert not [cell for cell in notebook.cells if cell.get("outputs")]
