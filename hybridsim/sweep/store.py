"""The result folder: one finished run is one folder that appears whole or not at all.

It knows file names and formats. It does not know how a run is made.
"""

import contextlib
import errno
import os
import shutil
import socket
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

import orjson
import pyarrow as pa
import pyarrow.parquet as pq
import yaml

from hybridsim import __version__
from hybridsim.config import Experiment, Run, expand, read_source
from hybridsim.errors import UserError
from hybridsim.files import make_folder, write_whole, writing
from hybridsim.records import LOSS_REASONS, TIMED_COLUMNS, RequestRecord, StepRecord
from hybridsim.sweep.inputs import code_digest, fingerprints


@dataclass(frozen=True, slots=True)
class RunResult:
    """What one run leaves behind. `steps` is None in replay mode."""

    records: Sequence[RequestRecord]
    steps: Sequence[StepRecord] | None
    meta: dict[str, Any]


def run_dir(out_dir: Path, run: Run) -> Path:
    return out_dir / "runs" / run.run_id


def write_run(out_dir: Path, run: Run, result: RunResult) -> None:
    """Write a run's folder beside its place, then move it there in one step.

    Raises WriteError where the disk is full or the folder is not ours; then nothing of it stays.
    """
    target = run_dir(out_dir, run)
    temporary = target.with_name(f".tmp-{run.run_id}@{socket.gethostname()}@{os.getpid()}")
    shutil.rmtree(temporary, ignore_errors=True)
    try:
        with writing(target):
            temporary.mkdir(parents=True)
        _write_files(temporary, target, run, result)
        with writing(target):
            _move_into_place(temporary, target)
    finally:
        shutil.rmtree(temporary, ignore_errors=True)


def _write_files(folder: Path, target: Path, run: Run, result: RunResult) -> None:
    """Into `folder`; errors speak of `target`, where people would look."""
    left_out = TIMED_COLUMNS if result.steps is None else ()
    with writing(target / "config.yaml"):
        (folder / "config.yaml").write_text(run.to_yaml(), encoding="utf-8")
    tables = {"requests.parquet": table_of(RequestRecord, result.records, left_out)}
    if result.steps is not None:
        tables["steps.parquet"] = table_of(StepRecord, result.steps)
    for name, table in tables.items():
        with writing(target / name):
            pq.write_table(table, folder / name)
    with writing(target / "meta.json"):
        write_json(folder / "meta.json", result.meta)


_MOST_MOVES = 100


def _move_into_place(temporary: Path, target: Path) -> None:
    old = temporary.with_name(f"{temporary.name}-old")
    try:
        for _ in range(_MOST_MOVES):
            with contextlib.suppress(FileNotFoundError):
                target.rename(old)
            # Killed between the two renames the run is missing, and --resume makes it anew.
            try:
                temporary.rename(target)
                return
            except OSError as error:
                if error.errno not in (errno.ENOTEMPTY, errno.EEXIST):
                    raise
            # Another process has put the same run there meanwhile: the last one stays.
            shutil.rmtree(old, ignore_errors=True)
        raise OSError(errno.EEXIST, "other processes keep writing it")
    finally:
        shutil.rmtree(old, ignore_errors=True)


_ARROW_TYPES = {int: pa.int64(), float: pa.float64(), str: pa.string()}


def table_of(kind: type, rows: Iterable[Any], left_out: Sequence[str] = ()) -> pa.Table:
    """A table with one column a dataclass field, in the order of the fields.

    `lost_tokens` becomes a column for each reason.
    """
    rows = list(rows)
    columns = {}
    for field in fields(kind):
        if field.name == "lost_tokens":
            for reason in LOSS_REASONS:
                lost = [row.lost_tokens.get(reason, 0) for row in rows]
                columns[f"lost_tokens_{reason}"] = pa.array(lost, type=pa.int64())
        elif field.name not in left_out:
            arrow = next(_ARROW_TYPES[t] for t in _ARROW_TYPES if field.type in (t, t | None))
            columns[field.name] = pa.array([getattr(row, field.name) for row in rows], type=arrow)
    return pa.table(columns)


def write_json(path: Path, data: Any) -> None:
    path.write_bytes(orjson.dumps(data, option=orjson.OPT_INDENT_2 | orjson.OPT_SERIALIZE_NUMPY))


def write_experiment(out_dir: Path, experiment: Experiment) -> None:
    """`experiment.yaml`: what was asked for, overrides included; `hybridsim report` reads it."""
    text = yaml.safe_dump(experiment.source.data, sort_keys=False)
    write_whole(out_dir / "experiment.yaml", text.encode())


def write_failure(out_dir: Path, run: Run, reason: str, traceback: str) -> None:
    """`failed/<hash>.txt`: the reason, the run's config and where it was raised.

    An older result of the same run goes where the run itself failed: --resume must not take it for
    this one. A worker that was killed (no traceback) says nothing against it.
    """
    if traceback:
        shutil.rmtree(run_dir(out_dir, run), ignore_errors=True)
    folder = out_dir / "failed"
    make_folder(folder, "--out")
    text = f"{reason}\n\n{run.to_yaml()}\n{traceback}"
    write_whole(folder / f"{run.run_id}.txt", text.encode())


def forget_failure(out_dir: Path, run: Run) -> None:
    """A run that has now finished is no longer among the failed."""
    (out_dir / "failed" / f"{run.run_id}.txt").unlink(missing_ok=True)
    with contextlib.suppress(OSError):
        (out_dir / "failed").rmdir()


def read_meta(out_dir: Path, run: Run) -> dict[str, Any]:
    meta: dict[str, Any] = orjson.loads((run_dir(out_dir, run) / "meta.json").read_bytes())
    return meta


ABSENT, BROKEN = "not there", "damaged"


def why_anew(out_dir: Path, run: Run) -> str | None:
    """Why what is in the run's folder cannot stand for the run; None where it can.

    It can where it is whole, of this config, these input files and this code.
    """
    folder = run_dir(out_dir, run)
    if not folder.exists():
        return ABSENT
    try:
        meta = read_meta(out_dir, run)
        versions, inputs = dict(meta["versions"]), dict(meta["inputs"])
        [stored] = expand(read_source(folder / "config.yaml")).runs
        num_rows = pq.ParquetFile(folder / "requests.parquet").metadata.num_rows
        if run.config.mode == "timed":
            pq.ParquetFile(folder / "steps.parquet").close()
    except (OSError, ValueError, TypeError, KeyError, AttributeError, UserError, pa.ArrowException):
        return BROKEN
    has_metrics = isinstance(meta.get("metrics"), dict) and "num_refused" in meta["metrics"]
    is_whole = meta.get("num_requests") == num_rows and has_metrics
    if stored.run_id != run.run_id or not is_whole:
        return BROKEN
    return _other_code(versions) or _other_files(inputs, fingerprints(run.config))


def _other_code(versions: dict[str, Any]) -> str | None:
    found = versions.get("hybridsim")
    if found != __version__:
        return f"made by hybridsim {found}, this is {__version__}"
    return None if versions.get("code") == code_digest() else "made by other code of hybridsim"


def _other_files(before: dict[str, Any], now: dict[str, str]) -> str | None:
    changed = sorted(key for key in {*before, *now} if before.get(key) != now.get(key))
    return f"changed since: {', '.join(changed)}" if changed else None


def remove_leftovers(out_dir: Path) -> None:
    """Delete half-written folders of processes of this machine that are no more."""
    for path in _leftovers(out_dir):
        shutil.rmtree(path, ignore_errors=True)


def _leftovers(out_dir: Path) -> Iterator[Path]:
    for path in (out_dir / "runs").glob(".tmp-*@*@*"):
        _, host, pid = path.name.removesuffix("-old").rsplit("@", 2)
        if host == socket.gethostname() and pid.isdigit() and not _is_alive(int(pid)):
            yield path


def _is_alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True
