"""summary.csv: one row a run, in the order of the sweep; read from the runs' own files."""

import csv
import io
from pathlib import Path
from typing import Any

from hybridsim.config import Experiment
from hybridsim.files import write_whole
from hybridsim.sweep.store import read_meta


def write_summary(out_dir: Path, experiment: Experiment, run_ids: set[str]) -> None:
    """Collect the runs of these ids. Columns: swept keys, `run`, then metrics in a fixed order."""
    rows: list[dict[str, Any]] = []
    for run in experiment.runs:
        if run.run_id in run_ids:
            metrics = read_meta(out_dir, run)["metrics"]
            rows.append({**run.swept, "run": run.run_id, **metrics})
    columns = [*experiment.axes, "run"]
    # The first row that has a metric decides its place; timed runs have more than replayed ones.
    for row in rows:
        columns.extend(name for name in row if name not in columns)
    text = io.StringIO(newline="")
    writer = csv.DictWriter(text, columns, lineterminator="\n")
    writer.writeheader()
    writer.writerows({key: _cell(value) for key, value in row.items()} for row in rows)
    write_whole(out_dir / "summary.csv", text.getvalue().encode())


def _cell(value: Any) -> Any:
    # repr keeps every digit; a missing number is an empty cell
    return repr(value) if isinstance(value, float) else value
