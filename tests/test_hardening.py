"""Mistakes and accidents that once got through."""

import json
import os
import pickle
from pathlib import Path

import pytest
from rich.console import Console

import hybridsim.cost.profiles
from experiments.helpers import finished_runs, read_summary, tiny, write_experiment
from hybridsim.build.vllm import options_of
from hybridsim.cache.pools import Memory
from hybridsim.cache.radix_cache import RadixCache
from hybridsim.config import load_experiment
from hybridsim.engines.vllm.engine import VLLMEngine
from hybridsim.engines.vllm.geometry import geometry_of
from hybridsim.engines.vllm.layout import build_layout
from hybridsim.errors import UserError
from hybridsim.models import get_model
from hybridsim.policies import make_checkpoint, make_eviction
from hybridsim.report.tables import read_results
from hybridsim.request import Request, Spans
from hybridsim.sim.replay import replay
from hybridsim.sweep import command, store
from hybridsim.traces import open_trace
from hybridsim.traces.convert import write_trace
from models.configs import QWEN35_0_8B


def run(path: Path, out: Path, *overrides: str, resume: bool = False) -> int:
    quiet = Console(quiet=True)
    return command.run(path, overrides, out_dir=out, console=quiet, resume=resume)


def test_a_null_among_swept_values_keeps_its_line(tmp_path):
    sweep = {"cache.thinning": [None, {"name": "path_cap", "max_states": 1}]}
    path = write_experiment(tmp_path, tiny(tmp_path, sweep=sweep))
    assert run(path, tmp_path / "out") == 0
    results = read_results(tmp_path / "out")
    assert results.axes == ["cache.thinning"]
    assert list(results.summary["cache.thinning"])[0] == "null"


def test_a_killed_worker_takes_no_earlier_result_along(tmp_path):
    path = write_experiment(tmp_path, tiny(tmp_path))
    out = tmp_path / "out"
    assert run(path, out) == 0
    before = finished_runs(out)
    some = load_experiment(path).runs[0]
    store.write_failure(out, some, "its process died", "")
    assert finished_runs(out) == before
    store.write_failure(out, some, "law broken", "Traceback")
    assert len(finished_runs(out)) == len(before) - 1


@pytest.mark.parametrize(
    ("changes", "place"),
    [
        ({"mode": "timed", "gpu": "h200", "arrivals": {"rate_scale": 1e-320}}, "rate_scale"),
        ({"cache": {"kv_tokens": 4096, "state_slots": 4, "eviction": "session_end"}}, "session"),
        ({"sweep": {"cache.checkpoint": ["none", "prompt_end+marked"]}}, "needs marks"),
        ({"gpu": "x"}, "gpu"),
    ],
)
def test_what_the_trace_or_gpu_cannot_give_is_refused_before_anything_is_written(
    tmp_path, changes, place
):
    path = write_experiment(tmp_path, tiny(tmp_path, **changes))
    with pytest.raises(UserError, match=place):
        run(path, tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_a_meta_file_of_something_else_counts_as_unfinished(tmp_path):
    path = write_experiment(tmp_path, tiny(tmp_path))
    out = tmp_path / "out"
    assert run(path, out) == 0
    some = load_experiment(path).runs[0]
    for content in ([], None, {"versions": None}, {"metrics": {}}):
        (store.run_dir(out, some) / "meta.json").write_text(json.dumps(content))
        assert store.why_anew(out, some) is not None


def test_a_trace_is_not_written_over_a_pipe(tmp_path):
    trace = tmp_path / "good.jsonl"
    trace.write_text('{"id": "a", "prompt": [["s", 5]], "output": 1}\n')
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    with pytest.raises(UserError, match="is a device or a pipe; allowed: the path of a file"):
        write_trace(open_trace(trace, "segments"), pipe, "segments")
    assert pipe.is_fifo()


@pytest.mark.parametrize("key", ["eagle_drop", "junction", "abort_stuck", "reserve_full_isl"])
def test_a_text_is_no_truth_value(key):
    with pytest.raises(UserError, match=f"engine.{key}"):
        options_of("0.33.0", {key: "no"})


def test_a_request_without_output_runs_with_drafts():
    options = options_of("0.33.0", {"spec_k": 1})
    layout = build_layout(geometry_of(get_model("qwen3.5-0.8b"), options), options)
    engine = VLLMEngine(options, layout, 100)
    whole = Spans.of([(0, layout.block_size)])
    assert engine.serve(Request("r", whole, Spans.unknown(0))).num_hit_tokens == 0
    engine.check()


def test_memory_follows_what_is_cached_and_not_the_trace():
    cache = RadixCache(
        Memory(1, 1, 200, 10_000), 1, make_checkpoint("prompt_end"), make_eviction("lru")
    )
    replay([Request(str(i), Spans.of([(i, 10)]), Spans.unknown(1)) for i in range(5000)], cache)
    victims = cache.residents._victims
    assert cache.tree.num_nodes <= 20
    assert len(victims._kv._queued) + len(victims._states._queued) < 1200


def test_resume_notices_an_edited_model(tmp_path):
    model = tmp_path / "config.json"
    model.write_text(json.dumps(QWEN35_0_8B))
    path = write_experiment(tmp_path, tiny(tmp_path, model=str(model), sweep=None))
    assert run(path, tmp_path / "out") == 0
    [before] = read_summary(tmp_path / "out")
    edited = model.read_text().replace('"num_key_value_heads": 2', '"num_key_value_heads": 4')
    assert len(edited) == len(model.read_text())
    model.write_text(edited)
    assert run(path, tmp_path / "out", resume=True) == 0
    [after] = read_summary(tmp_path / "out")
    # twice the KV heads, twice the bytes of the same tokens
    assert float(after["peak_kv_bytes"]) == 2 * float(before["peak_kv_bytes"])


@pytest.mark.parametrize("name", ["tiny.jsonl", "profile.json"])
def test_a_run_is_finished_only_while_the_files_it_read_stay_as_they_were(tmp_path, name):
    shipped = Path(hybridsim.cost.profiles.__file__).parent / "h200.qwen3.5-0.8b.json"
    profile = tmp_path / "profile.json"
    profile.write_bytes(shipped.read_bytes())
    gpu = {"name": "h200", "profile": str(profile)}
    path = write_experiment(tmp_path, tiny(tmp_path, gpu=gpu, mode="timed", sweep=None))
    out = tmp_path / "out"
    assert run(path, out) == 0
    [only] = load_experiment(path).runs
    file = tmp_path / name
    content, stat = file.read_bytes(), file.stat()
    os.utime(file, ns=(0, 0))
    assert store.why_anew(out, only) is None, "a copy with another date is the same file"
    file.write_bytes(content.replace(b"6", b"7", 1))
    os.utime(file, ns=(stat.st_atime_ns, stat.st_mtime_ns + 1))
    assert store.why_anew(out, only) is not None
    file.write_bytes(content)
    os.utime(file, ns=(stat.st_atime_ns, stat.st_mtime_ns + 2))
    assert store.why_anew(out, only) is None


def test_an_error_survives_whoever_rebuilds_it():
    error = UserError("cache.memory", "is missing")
    for again in (type(error)(*error.args), pickle.loads(pickle.dumps(error))):
        assert (again.place, again.message) == ("cache.memory", "is missing")
        assert str(again) == "cache.memory: is missing"


def test_a_gpu_too_slow_for_the_clock_is_a_failed_run_with_a_clear_reason(tmp_path):
    gpu = {
        "flops_per_s": 1,  # the least that is taken, and the least of it used
        "efficiency": {"matmul": 1e-6},
        "hbm_bytes_per_s": 4e12,
        "link_bytes_per_s": 3e11,
        "memory": "96GiB",
    }
    path = write_experiment(tmp_path, tiny(tmp_path, gpu=gpu, mode="timed", sweep=None))
    assert run(path, tmp_path / "out") == 1
    [failed] = (tmp_path / "out" / "failed").glob("*.txt")
    assert failed.read_text().startswith("UserError: ")


def test_a_timed_run_that_serves_nobody_is_drawn_all_the_same(tmp_path):
    # 16 tokens of KV hold no request of the trace
    cache = {"kv_tokens": 16, "state_slots": 4, "page_size": 16}
    data = tiny(tmp_path, gpu="h200", mode="timed", cache=cache, sweep=None, plots=None)
    assert run(write_experiment(tmp_path, data), tmp_path / "out") == 0
    [row] = read_summary(tmp_path / "out")
    assert row["num_refused"] == row["num_requests"] == "4"
    assert (tmp_path / "out" / "plots" / "steps.png").is_file()


@pytest.mark.parametrize(
    ("options", "cache", "place"),
    [
        ({"spec_k": 10**18}, {"num_blocks": 9}, "engine.spec_k"),
        ({"max_num_batched_tokens": 2**62}, {"num_blocks": 9}, "engine.max_num_batched_tokens"),
        ({}, {"num_blocks": 2**31}, "cache.num_blocks"),
        ({}, {"memory": 10**18}, "cache.memory"),
    ],
)
def test_a_pool_that_no_machine_can_hold_is_refused(tmp_path, options, cache, place):
    engine = {"name": "vllm-0.33.0", **options}
    path = write_experiment(tmp_path, tiny(tmp_path, engine=engine, cache=cache, sweep=None))
    with pytest.raises(UserError, match=place):
        run(path, tmp_path / "out")
    assert not (tmp_path / "out").exists()
