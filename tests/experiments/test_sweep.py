"""Sweeps: numbers worked out by hand, and result folders that survive whatever happens."""

import json
import multiprocessing as mp
import os
import shutil
import signal
import time
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from rich.console import Console

from experiments.helpers import (
    KV_BYTES,
    STATE_BYTES,
    finished_runs,
    read_summary,
    slow,
    start,
    tiny,
    write_experiment,
)
from hybridsim.config import load_experiment
from hybridsim.sweep import command, runner, store
from hybridsim.sweep.events import Advanced, Failed, Finished
from hybridsim.sweep.execute import execute
from hybridsim.sweep.local import run_processes, run_serial


def run(path: Path, out_dir: Path, *overrides: str, **options) -> int:
    return command.run(path, overrides, out_dir=out_dir, console=Console(quiet=True), **options)


def contents(folder: Path) -> dict[str, bytes]:
    return {
        str(path.relative_to(folder)): path.read_bytes()
        for path in folder.rglob("*")
        if path.is_file()
    }


# Prompts: A 96 tokens, B 128, C 80, D 112; 416 in all.
# KV (plenty of it): B finds A's 96, C and D find the 64 of sys: 224 tokens match in any case.
# none        saves nothing: no hit.
# prompt_end  saves at 96, 128, 80, 112: B hits A's 96; C and D leave at 64, where there is none.
# branch      B leaves at 96 and saves there, C leaves at 64 and saves there; D hits 64.
# With one slot the running request holds it, so nothing can be saved.
HIT_TOKENS = {
    ("1", "none"): 0,
    ("1", "prompt_end"): 0,
    ("1", "branch"): 0,
    ("4", "none"): 0,
    ("4", "prompt_end"): 96,
    ("4", "branch"): 64,
}


def test_a_tiny_sweep_gives_the_numbers_worked_out_by_hand(tmp_path: Path) -> None:
    out = tmp_path / "out"
    assert run(write_experiment(tmp_path, tiny(tmp_path)), out) == 0
    rows = read_summary(out)
    found = {(row["cache.state_slots"], row["cache.checkpoint"]): row for row in rows}
    assert list(found) == list(HIT_TOKENS)
    for key, num_hit_tokens in HIT_TOKENS.items():
        row = found[key]
        assert float(row["token_hit_rate"]) == num_hit_tokens / 416
        assert float(row["token_match_rate"]) == 224 / 416
        assert float(row["request_hit_rate"]) == (1 if num_hit_tokens else 0) / 4
        # An infinite cache has a state everywhere: it hits what matches.
        assert float(row["ceiling_token_hit_rate"]) == 224 / 416
        # In the tree at the end: sys 64, u1 32, u2 32, u3 16, u4 48; D still decodes 16 more.
        assert int(row["peak_kv_bytes"]) == (64 + 32 + 32 + 16 + 48 + 16) * KV_BYTES
    # none: the running request's own state; prompt_end: 4 of 4 slots; branch: 2 saved + 1 running
    peaks = [int(found["4", name]["peak_state_bytes"]) for name in ("none", "prompt_end", "branch")]
    assert peaks == [1 * STATE_BYTES, 4 * STATE_BYTES, 3 * STATE_BYTES]


def test_warmup_leaves_the_first_requests_out_of_the_rates(tmp_path: Path) -> None:
    path, out = write_experiment(tmp_path, tiny(tmp_path)), tmp_path / "out"
    overrides = ("trace.warmup=0.5", "cache.state_slots=4", "cache.checkpoint=branch")
    assert run(path, out, *overrides) == 0
    [row] = read_summary(out)
    # C and D: 64 of 80 + 112 tokens hit, 128 of them match
    assert float(row["token_hit_rate"]) == 64 / 192
    assert float(row["ceiling_token_hit_rate"]) == 128 / 192
    [folder] = finished_runs(out)
    assert pq.read_table(folder / "requests.parquet").num_rows == 4


def test_the_result_folder_holds_what_the_contract_says(tmp_path: Path) -> None:
    path = write_experiment(tmp_path, tiny(tmp_path, mode="timed", gpu="h200"))
    out = tmp_path / "out"
    assert run(path, out, "cache.checkpoint=prompt_end", "cache.state_slots=4") == 0
    [folder] = finished_runs(out)
    assert {entry.name for entry in folder.iterdir()} == {
        "config.yaml", "requests.parquet", "steps.parquet", "meta.json",
    }  # fmt: skip
    assert {"summary.csv", "report.html", "plots", "runs"} <= {e.name for e in out.iterdir()}
    columns = pq.read_schema(folder / "requests.parquet").names
    # a column of lost tokens for each reason comes on top of the contract's
    assert [name for name in columns if not name.startswith("lost_tokens_")] == [
        "request_id", "session_id", "num_prompt_tokens", "num_output_tokens", "num_match_tokens",
        "num_hit_tokens", "hit_source", "miss_reason", "num_evicted_tokens", "num_evicted_states",
        "num_checkpoints", "arrival_s", "scheduled_s", "first_token_s", "finished_s",
        "num_preemptions",
    ]  # fmt: skip
    meta = json.loads((folder / "meta.json").read_bytes())
    assert meta["capacity"]["kv_bytes_per_token"] == KV_BYTES
    assert meta["capacity"]["state_bytes"] == STATE_BYTES
    facts = {"versions", "seed", "date", "wall_s", "trace", "assumptions", "laws_checked"}
    assert facts <= set(meta)
    summary = read_summary(out)[0]
    for name in ("ttft_s", "tpot_s", "e2e_s"):
        assert {f"{name}_{part}" for part in ("mean", "p50", "p90", "p99")} <= set(summary)


def test_replay_has_no_columns_of_time(tmp_path: Path) -> None:
    path, out = write_experiment(tmp_path, tiny(tmp_path, sweep=None)), tmp_path / "out"
    assert run(path, out) == 0
    [folder] = finished_runs(out)
    timed = {"arrival_s", "scheduled_s", "first_token_s", "finished_s", "num_preemptions"}
    assert not timed & set(pq.read_schema(folder / "requests.parquet").names)
    assert not (folder / "steps.parquet").exists()


def test_processes_and_one_process_write_the_same(tmp_path: Path) -> None:
    path = write_experiment(tmp_path, tiny(tmp_path))
    assert run(path, tmp_path / "one") == 0
    assert run(path, tmp_path / "two", num_jobs=2) == 0
    one, two = contents(tmp_path / "one"), contents(tmp_path / "two")
    assert set(one) == set(two)
    assert one["summary.csv"] == two["summary.csv"]
    for name in one:
        if name.endswith((".parquet", "config.yaml", ".png")):
            assert one[name] == two[name], name


def test_a_dry_run_lists_sizes_and_writes_nothing(tmp_path: Path, capsys) -> None:
    path = write_experiment(
        tmp_path,
        tiny(
            tmp_path,
            cache={"state_fraction": 0.25},
            sweep={"cache.memory": ["1GiB"], "cache.checkpoint": ["none"]},
        ),
    )
    before = contents(tmp_path)
    assert run(path, tmp_path / "out", dry_run=True) == 0
    assert contents(tmp_path) == before
    printed = capsys.readouterr().out
    # a quarter of 1 GiB in states: floor(2^28 / 19,537,920) = 13; the rest in pages of 16 tokens:
    # floor(3 x 2^28 / (16 x 12,288)) = 4,096 pages = 65,536 tokens
    for text in ("1GiB", "none", "65,536", "13"):
        assert text in printed


# -- going on after an end of any kind


def test_resume_does_only_what_is_missing(tmp_path: Path) -> None:
    path, out = write_experiment(tmp_path, tiny(tmp_path)), tmp_path / "out"
    assert run(path, out) == 0
    whole = contents(out)
    folders = finished_runs(out)
    stamps = {folder: (folder / "meta.json").stat().st_mtime_ns for folder in folders}
    shutil.rmtree(folders[0])
    assert run(path, out, resume=True) == 0
    assert contents(out)["summary.csv"] == whole["summary.csv"]
    for folder in folders[1:]:
        assert (folder / "meta.json").stat().st_mtime_ns == stamps[folder]


def _cut(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-7])


def _age(path: Path) -> None:
    path.write_text(path.read_text().replace('"hybridsim": "', '"hybridsim": "old-'))


@pytest.mark.parametrize(
    ("name", "damage"),
    [
        ("requests.parquet", _cut),
        ("requests.parquet", Path.unlink),
        ("meta.json", _cut),
        ("meta.json", _age),
        ("config.yaml", lambda path: path.write_text("name: x\n")),
        ("config.yaml", lambda path: path.write_text(path.read_text() + "tp: 2\n")),
    ],
)
def test_resume_makes_broken_runs_anew(tmp_path: Path, name: str, damage) -> None:
    path, out = write_experiment(tmp_path, tiny(tmp_path)), tmp_path / "out"
    assert run(path, out) == 0
    whole = contents(out)["summary.csv"]
    experiment = load_experiment(path)
    assert all(store.why_anew(out, each) is None for each in experiment.runs)
    damage(finished_runs(out)[2] / name)
    assert sum(store.why_anew(out, each) is None for each in experiment.runs) == 5
    assert run(path, out, resume=True) == 0
    assert all(store.why_anew(out, each) is None for each in experiment.runs)
    assert contents(out)["summary.csv"] == whole


def test_resume_after_the_trace_has_changed_runs_everything(tmp_path: Path) -> None:
    path, out = write_experiment(tmp_path, tiny(tmp_path)), tmp_path / "out"
    assert run(path, out) == 0
    trace = tmp_path / "tiny.jsonl"
    trace.write_text("".join(trace.read_text().splitlines(keepends=True)[:2]))
    assert run(path, out, resume=True) == 0
    assert {row["num_requests"] for row in read_summary(out)} == {"2"}


@pytest.mark.parametrize("call", range(1, 9))
def test_a_kill_at_any_file_operation_leaves_runs_whole_or_absent(
    tmp_path: Path, call: int, monkeypatch
) -> None:
    """A child dies for good at its nth file operation while it replaces a finished run."""
    experiment = load_experiment(write_experiment(tmp_path, tiny(tmp_path)))
    out, first = tmp_path / "out", experiment.runs[4]
    result = execute(first, lambda _: None)
    store.write_run(out, first, result)
    child = os.fork()
    if child == 0:
        left = iter(range(call - 1))

        def dying(function):
            def wrapped(*args, **kwargs):
                if next(left, None) is None:
                    os._exit(9)
                return function(*args, **kwargs)

            return wrapped

        Path.mkdir, Path.rename = dying(Path.mkdir), dying(Path.rename)
        Path.write_text = dying(Path.write_text)
        pq.write_table, store.write_json = dying(pq.write_table), dying(store.write_json)
        shutil.rmtree = dying(shutil.rmtree)
        store.write_run(out, first, result)
        os._exit(0)
    os.waitpid(child, 0)
    folder = store.run_dir(out, first)
    assert store.why_anew(out, first) is None or not folder.exists()
    store.remove_leftovers(out)
    assert [path.name for path in (out / "runs").iterdir()] in ([first.run_id], [])


def test_kill_9_loses_only_the_runs_in_flight(tmp_path: Path) -> None:
    path, out = slow(tmp_path), tmp_path / "results" / "slow"
    process = start("run", str(path), "--jobs", "2", cwd=tmp_path)
    _wait_for_runs(process, out, 2)
    process.kill()
    process.communicate(timeout=30)  # hangs while an orphan holds the pipe
    experiment = load_experiment(path)
    kept = {each.run_id for each in experiment.runs if store.why_anew(out, each) is None}
    assert 2 <= len(kept) < 8
    assert run(path, out, resume=True) == 0
    assert len(finished_runs(out)) == 8
    assert run(path, tmp_path / "straight") == 0
    assert contents(out)["summary.csv"] == contents(tmp_path / "straight")["summary.csv"]


@pytest.mark.parametrize("num_jobs", ["1", "2"])
def test_ctrl_c_exits_130_and_keeps_what_is_finished(tmp_path: Path, num_jobs: str) -> None:
    path, out = slow(tmp_path), tmp_path / "results" / "slow"
    process = start("run", str(path), "--jobs", num_jobs, cwd=tmp_path)
    _wait_for_runs(process, out, 1)
    process.send_signal(signal.SIGINT)
    _, errors = process.communicate(timeout=30)
    assert process.returncode == 130
    assert "Traceback" not in errors
    assert "--resume" in errors
    assert 1 <= len(finished_runs(out)) < 8
    assert not list(out.glob("runs/.tmp*"))


def _wait_for_runs(process, out: Path, number: int) -> None:
    deadline = time.monotonic() + 60
    while len(finished_runs(out)) < number:
        assert process.poll() is None, process.communicate()
        assert time.monotonic() < deadline
        time.sleep(0.02)


def _keep_writing(out: Path, run, result, num_times: int) -> None:
    for _ in range(num_times):
        store.write_run(out, run, result)


def test_processes_that_write_one_run_at_once_leave_it_whole(tmp_path: Path) -> None:
    """Whoever moves a folder away may find another one in its place; 4 x 40 times here."""
    run_of = load_experiment(write_experiment(tmp_path, tiny(tmp_path, sweep=None))).runs[0]
    out, result = tmp_path / "out", execute(run_of, lambda _: None)
    context = mp.get_context("fork")
    arguments = (out, run_of, result, 40)
    writers = [context.Process(target=_keep_writing, args=arguments) for _ in range(4)]
    for writer in writers:
        writer.start()
    for writer in writers:
        writer.join()
    assert [writer.exitcode for writer in writers] == [0] * 4
    assert store.why_anew(out, run_of) is None
    assert [path.name for path in (out / "runs").iterdir()] == [run_of.run_id]


# -- runs that fail


def test_a_failing_run_is_told_and_the_others_go_on(tmp_path: Path, monkeypatch) -> None:
    path, out = write_experiment(tmp_path, tiny(tmp_path)), tmp_path / "out"
    assert run(path, out) == 0  # an older result of the run that will fail must not be shown

    def failing(each, on_progress):
        if each.swept == {"cache.state_slots": 4, "cache.checkpoint": "branch"}:
            raise AssertionError("law broken: 1 != 2")
        return execute(each, on_progress)

    monkeypatch.setattr(runner, "execute", failing)
    console = Console(record=True, width=200, quiet=False, file=open(os.devnull, "w"))  # noqa: SIM115
    assert command.run(path, [], out_dir=out, console=console) == 1
    told = console.export_text()
    assert "cache.state_slots=4 cache.checkpoint=branch" in told
    assert "law broken: 1 != 2" in told
    assert len(read_summary(out)) == 5
    [note] = (out / "failed").iterdir()
    assert "checkpoint: branch" in note.read_text()
    assert "Traceback" in note.read_text()
    monkeypatch.undo()
    assert run(path, out, resume=True) == 0
    assert not (out / "failed").exists()


def _one_dies(index: int, on_progress) -> None:
    on_progress(1)
    if index == 1:
        os.kill(os.getpid(), signal.SIGKILL)
    if index == 3:
        raise ValueError("no such luck")


@pytest.mark.parametrize("num_jobs", [1, 2, 7])
def test_a_dying_process_takes_only_its_run_with_it(num_jobs: int) -> None:
    events = []
    run_processes(_one_dies, range(6), events.append, num_jobs)
    ends = {e.index: e for e in events if not isinstance(e, Advanced)}
    assert {i for i, end in ends.items() if isinstance(end, Finished)} == {0, 2, 4, 5}
    assert "process died" in ends[1].reason
    assert ends[3].reason == "ValueError: no such luck"
    assert sum(isinstance(e, Advanced) for e in events) >= 5


def test_serial_runs_tell_the_same_events() -> None:
    events = []

    def work(index, on_progress):
        on_progress(2)
        if index == 1:
            raise ValueError("no")

    run_serial(work, range(2), events.append)
    assert events[:3] == [Advanced(0, 2), Finished(0), Advanced(1, 2)]
    assert isinstance(events[3], Failed)


def test_each_row_says_how_far_it_is_from_the_best_possible(tmp_path: Path) -> None:
    out = tmp_path / "out"
    assert run(write_experiment(tmp_path, tiny(tmp_path)), out) == 0
    for row in read_summary(out):
        hit, low, high, ceiling = (
            float(row[name])
            for name in (
                "token_hit_rate",
                "feasible_token_hit_rate",
                "bound_token_hit_rate",
                "ceiling_token_hit_rate",
            )
        )
        assert low <= high <= ceiling + 1e-12
        assert hit <= high
        assert float(row["regret"]) == pytest.approx(high - hit)
    # With plenty of memory a clairvoyant keeps the states at 96 and 64: B hits 96, C and D 64.
    best = [row for row in read_summary(out) if row["cache.state_slots"] == "4"]
    for row in best:
        assert float(row["bound_token_hit_rate"]) == pytest.approx(224 / 416)
    off = tmp_path / "off"
    assert run(write_experiment(tmp_path, tiny(tmp_path)), off, "bound=false") == 0
    assert "regret" not in read_summary(off)[0]
