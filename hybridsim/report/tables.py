"""Reads a result folder back: the summary, and the rows of each run. Runs nothing."""

from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import orjson
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq

from hybridsim.config import Experiment, expand, read_source
from hybridsim.errors import UserError


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
        return {run: self._meta(run) for run in self.summary["run"]}

    def _meta(self, run: str) -> dict[str, Any]:
        path = self.folder / "runs" / run / "meta.json"
        try:
            meta: dict[str, Any] = orjson.loads(path.read_bytes())
        except (OSError, orjson.JSONDecodeError):
            raise UserError(
                str(path), "is missing or damaged; allowed: a whole folder (run it with --resume)"
            ) from None
        return meta

    @property
    def is_timed(self) -> bool:
        return any((self.folder / "runs" / r / "steps.parquet").is_file() for r in self.metas)

    def requests(self, run: str) -> pd.DataFrame:
        """requests.parquet without the warm-up; times of day become durations.

        Adds ttft_s, e2e_s, queue_s and tpot_s where the run was timed; NaN for refused requests.
        """
        table = self._rows(run, "requests.parquet")
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
        return self._rows(run, "steps.parquet")

    def _rows(self, run: str, name: str) -> pd.DataFrame:
        path = self.folder / "runs" / run / name
        try:
            return pq.read_table(path).to_pandas()
        except (OSError, pa.ArrowException):
            raise UserError(
                str(path), "is missing or damaged; allowed: a whole folder (run it with --resume)"
            ) from None


def read_results(folder: Path) -> Results:
    """Raises UserError where the folder is no result folder or has no finished run."""
    experiment_path, summary_path = folder / "experiment.yaml", folder / "summary.csv"
    for path in (experiment_path, summary_path):
        if not path.is_file():
            raise UserError(str(path), "no such file; allowed: a folder that `run` has written")
    experiment = expand(read_source(experiment_path))
    texts = dict.fromkeys([*experiment.axes, "run"], str)
    try:
        summary = pd.read_csv(summary_path, dtype=texts, keep_default_na=False, na_values=[""])
    except (ValueError, pd.errors.ParserError) as error:
        raise UserError(str(summary_path), f"cannot be read: {error}") from None
    missing = [column for column in texts if column not in summary]
    if missing:
        raise UserError(str(summary_path), f"has no column {missing[0]!r}; run it anew")
    if summary.empty:
        raise UserError(str(summary_path), "has no finished run; allowed: at least one")
    swept = list(experiment.axes)
    summary[swept] = summary[swept].fillna("null")
    return Results(folder, experiment, summary)
