"""Test that examples/quickstart.ipynb runs from top to bottom."""

from __future__ import annotations

import itertools
import json
import os
from pathlib import Path

import pytest

from webagent_jax.tracking import atomic_files

ROOT = Path(__file__).parents[1]
NOTEBOOK = ROOT / "examples" / "quickstart.ipynb"


def test_notebook_has_no_outputs_and_a_sentence_before_each_cell() -> None:
    cells = json.loads(NOTEBOOK.read_text())["cells"]
    code = [cell for cell in cells if cell["cell_type"] == "code"]
    assert code and all(not c["outputs"] and c["execution_count"] is None for c in code)
    # Each code cell follows a description.
    kinds = [cell["cell_type"] for cell in cells]
    assert all(pair != ("code", "code") for pair in itertools.pairwise(kinds))


@pytest.mark.slow
@pytest.mark.browser
@pytest.mark.timeout(3_600)
def test_notebook_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import nbformat
    from nbclient import NotebookClient

    # The kernel is a process of its own, and starts in the temporary directory.
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")]))
    notebook = nbformat.read(NOTEBOOK, as_version=4)
    client = NotebookClient(
        notebook, timeout=1_800, resources={"metadata": {"path": str(tmp_path)}}
    )
    client.execute()
    outputs = [output for cell in notebook.cells for output in cell.get("outputs", [])]
    types = {name for output in outputs for name in output.get("data", {})}
    # Screenshots of the episode, and the plot.
    assert {"image/jpeg", "image/png"} <= types
    text = "".join(output.get("text", "") for output in outputs)
    assert "Task: " in text and " [1]" in text and "with reward" in text
    for name in ("base", "eval_bc", "eval_grpo"):
        record = atomic_files.read_json(tmp_path / "runs" / "notebook" / name / "eval.json")
        assert record["n"] == 48
