"""Reads a result folder back: the summary, and the rows of each run. Runs nothing."""

from dataclasses import dataclass, fields, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq

from hybridsim.config import Experiment, expand, read_source
from hybridsim.errors import UserError
from hybridsim.records import TIMED_COLUMNS, RequestRecord, StepRecord
from hybridsim.report.meta import WHOLE, read_meta


@dataclass(frozen=True)
class Results:
    """A result folder. `summary` has one row a run; swept keys and `run` are texts."""

    folder: Path
    experiment: Experiment
    summary: pd.DataFrame

    @property
    def axes(self) -> list[str]:
        """Swept keys that take more than one value."""
        return [key for key in self.experiment.axes if self.summary[key].nunique() > 1]

    @cached_property
    def metas(self) -> dict[str, dict[str, Any]]:
        """meta.json of each run, by run id."""
        runs = self.folder / "runs"
        return {run: read_meta(runs / run / "meta.json") for run in self.summary["run"]}

    @property
    def is_timed(self) -> bool:
        """Whether any of the runs had a clock."""
        return len(self.timed.summary) > 0

    @cached_property
    def timed(self) -> "Results":
        """Those runs alone that had a clock; a sweep over `mode` has others beside them."""
        modes = {run.run_id: run.config.mode for run in self.experiment.runs}
        had_clock = [modes.get(run) == "timed" for run in self.summary["run"]]
        return replace(self, summary=self.summary[had_clock])

    def requests(self, run: str) -> pd.DataFrame:
        """requests.parquet without the warm-up; times of day become durations.

        Adds ttft_s, e2e_s, queue_s and tpot_s where the run was timed; NaN for refused requests.
        """
        table = self._rows(run, "requests.parquet", RequestRecord)
        table = table.iloc[self.metas[run]["num_warmup_requests"] :]
        if "arrival_s" not in table:
            return table
        decode_s = table["finished_s"] - table["first_token_s"]
        return table.assign(
            ttft_s=table["first_token_s"] - table["arrival_s"],
            e2e_s=table["finished_s"] - table["arrival_s"],
            queue_s=table["scheduled_s"] - table["arrival_s"],
            tpot_s=(decode_s / (table["num_output_tokens"] - 1)).where(
                table["num_output_tokens"] > 1
            ),
        )

    def steps(self, run: str) -> pd.DataFrame:
        """steps.parquet of a timed run."""
        return self._rows(run, "steps.parquet", StepRecord)

    def _rows(self, run: str, name: str, kind: type) -> pd.DataFrame:
        path = self.folder / "runs" / run / name
        try:
            table = pq.ParquetFile(path).read().to_pandas()
        except (OSError, pa.ArrowException):
            raise UserError(str(path), f"is missing or damaged; {WHOLE}") from None
        for column in _columns_of(kind, is_timed="arrival_s" in table):
            if column not in table:
                raise UserError(str(path), f"has no column {column!r}; {WHOLE}")
        return table


def _columns_of(kind: type, *, is_timed: bool) -> list[str]:
    """Columns that the rows of a record surely have, times where there was a clock."""
    names = [field.name for field in fields(kind) if field.name != "lost_tokens"]
    return [name for name in names if is_timed or name not in TIMED_COLUMNS]


def read_results(folder: Path) -> Results:
    """Raises UserError where the folder is no result folder or has no finished run."""
    experiment_path, summary_path = folder / "experiment.yaml", folder / "summary.csv"
    for path in (experiment_path, summary_path):
        if not path.is_file():
            raise UserError(str(path), "no such file; allowed: a folder that `run` has written")
    experiment = expand(read_source(experiment_path))
    texts = dict.fromkeys([*experiment.axes, "run"], str)
    if not summary_path.read_bytes().endswith(b"\n"):
        raise UserError(str(summary_path), f"is cut off in its last row; {WHOLE}")
    try:
        summary = pd.read_csv(summary_path, dtype=texts, keep_default_na=False, na_values=[""])
    except (ValueError, pd.errors.ParserError) as error:
        raise UserError(str(summary_path), f"cannot be read: {error}; {WHOLE}") from None
    missing = [column for column in texts if column not in summary]
    if missing:
        raise UserError(str(summary_path), f"has no column {missing[0]!r}; {WHOLE}")
    if summary.empty:
        raise UserError(str(summary_path), "has no finished run; allowed: at least one")
    if summary["run"].isna().any():
        raise UserError(str(summary_path), f"has a row without a run; {WHOLE}")
    swept = list(experiment.axes)
    summary[swept] = summary[swept].fillna("null")
    results = Results(folder, experiment, summary)
    _ = results.metas  # so that a damaged one is told before anything is drawn
    return results
