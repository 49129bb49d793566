"""`hybridsim curve` and `hybridsim bound`, from files to tables, and how they refuse bad input."""

import csv
from unittest import mock

import pytest
from typer.testing import CliRunner

from hybridsim.cli.app import app
from hybridsim.errors import UserError

TRACE = "\n".join(
    f'{{"id": "{i}", "prompt": [["sys", 600], ["u{i % 3}", {200 + 10 * (i % 3)}], ["q{i}", 64]], '
    f'"output": 20}}'
    for i in range(30)
)
EXPERIMENT = """
name: small
trace: {format: segments, path: PATH}
model: qwen3.5-0.8b
cache: {layout: shared, page_size: 16, checkpoint: prompt_end}
sweep:
  cache.memory: [256MiB, 1GiB]
  cache.checkpoint: [prompt_end, all_blocks]
"""


@pytest.fixture
def trace(tmp_path):
    path = tmp_path / "small.jsonl"
    path.write_text(TRACE + "\n")
    return path


def run(*arguments):
    result = CliRunner().invoke(app, [str(argument) for argument in arguments])
    if result.exception is not None and not isinstance(result.exception, SystemExit):
        raise result.exception
    return result


def table(path):
    with path.open() as file:
        return list(csv.DictReader(file))


@pytest.mark.parametrize("refresh", ["path", "named", "again"])
def test_curve_writes_a_rising_table_and_a_picture(trace, tmp_path, refresh):
    out = tmp_path / "out"
    told = run("curve", trace, "--model", "qwen3.5-0.8b", "--out", out, "--checkpoint",
               "all_blocks", "--refresh", refresh).output  # fmt: skip
    # The longest: 600 + 220 + 64 + 20 - 1 tokens in 57 pages of 16, 12,288 B each, and a state.
    least = (57 * 16 * 12_288 + 19_537_920) / 2**20
    assert f"below {least:.4g} MiB a replay refuses" in " ".join(told.split())
    rates = [float(row["token_hit_rate"]) for row in table(out / "curve.csv")]
    assert rates == sorted(rates)
    assert rates[-1] > rates[0]
    assert (out / "curve.png").stat().st_size > 1000
    bounds = {row["memory_bytes"]: float(row["bound_token_hit_rate"])
              for row in table(out / "bounds.csv")}  # fmt: skip
    below = [row for row in table(out / "curve.csv") if row["memory_bytes"] in bounds]
    assert below
    for row in below:
        assert float(row["token_hit_rate"]) <= bounds[row["memory_bytes"]] + 1e-9
    assert list(bounds.values()) == sorted(bounds.values())
    assert {row["refresh"] for row in table(out / "curve.csv")} == {refresh}


def test_curve_of_a_split_pool_writes_a_surface(trace, tmp_path):
    out = tmp_path / "out"
    run("curve", trace, "--model", "qwen3.5-0.8b", "--layout", "split", "--out", out,
        "--checkpoint", "all_blocks")  # fmt: skip
    rows = table(out / "curve.csv")
    assert {"kv_bytes", "state_slots", "token_hit_rate"} <= set(rows[0])
    for row in table(out / "bounds.csv"):  # no split of at most so much passes it
        most = int(row["memory_bytes"])
        inside = [float(cell["token_hit_rate"]) for cell in rows
                  if int(cell["kv_bytes"]) + int(cell["state_bytes"]) <= most]  # fmt: skip
        assert max(inside, default=0) <= float(row["bound_token_hit_rate"]) + 1e-9
    assert (out / "surface.png").exists()


def test_an_experiment_gives_a_line_for_each_policy_and_a_bracket_for_each_size(trace, tmp_path):
    path = tmp_path / "small.yaml"
    path.write_text(EXPERIMENT.replace("PATH", str(trace)))
    out = tmp_path / "out"
    run("curve", path, "--out", out)
    assert {row["checkpoint"] for row in table(out / "curve.csv")} == {"prompt_end", "all_blocks"}
    run("bound", path, "--out", out, "--steps", 50)
    rows = table(out / "bound.csv")
    assert [int(row["memory_bytes"]) for row in rows] == [256 * 2**20, 2**30]
    assert all(float(row["lower"]) <= float(row["upper"]) for row in rows)


def test_a_grid_takes_policies_that_one_pass_cannot(trace, tmp_path):
    out = tmp_path / "out"
    run("curve", trace, "--model", "qwen3.5-0.8b", "--checkpoint", "branch", "--grid", "1GiB",
        "--out", out)  # fmt: skip
    assert len(table(out / "curve.csv")) == 1


def test_blocks_need_no_model_and_may_be_sampled(trace, tmp_path):
    out = tmp_path / "out"
    run("curve", trace, "--blocks", "--out", out)
    exact = {row["blocks"]: row["token_hit_rate"] for row in table(out / "curve.csv")}
    run("curve", trace, "--blocks", "--sample", 1.0, "--out", out, "--force")
    for row in table(out / "curve.csv"):
        if row["blocks"] in exact:
            assert float(row["token_hit_rate"]) == pytest.approx(float(exact[row["blocks"]]))


def test_a_grid_gives_a_line_for_each_set_of_policies_as_a_run_of_each_would(trace, tmp_path):
    out = tmp_path / "out"
    run("curve", trace, "--model", "qwen3.5-0.8b", "--grid", "64MiB,100MiB", "--out", out,
        "--checkpoint", "prompt_end", "--checkpoint", "branch", "--eviction", "lru", "--eviction",
        "{name: lru_k, k: 3}", "--thinning", "{name: path_cap, max_states: 2}")  # fmt: skip
    found = table(out / "curve.csv")
    assert len(found) == 8
    run("run", experiment_of(tmp_path, trace, """
sweep:
  cache.memory: [64MiB, 100MiB]
  cache.checkpoint: [prompt_end, branch]
  cache.eviction: [lru, {name: lru_k, k: 3}]
  cache.thinning: [{name: path_cap, max_states: 2}]
"""), "--out", tmp_path / "runs")  # fmt: skip
    rows = table(tmp_path / "runs" / "summary.csv")
    assert sorted(float(row["token_hit_rate"]) for row in found) == pytest.approx(
        sorted(float(row["token_hit_rate"]) for row in rows)
    )
    assert len({row["token_hit_rate"] for row in rows}) > 2


# The requests need 883 to 903 tokens, which are 56, 56 and 57 pages of 192 KiB, and a state of
# 18.63 MiB: 29.13 or 29.32 MiB in one pool. 35 % of 30 MiB are 56 pages.
@pytest.mark.parametrize(
    ("layout", "sizes", "num_refused"),
    [
        ("shared", ["20MiB", "29.2MiB", "64MiB"], [30, 10, 0]),
        ("split", ["30MiB", "64MiB"], [10, 0]),
    ],
)
def test_grid_and_bound_say_of_small_memories_what_runs_say(
    trace, tmp_path, layout, sizes, num_refused
):
    fraction = {"shared": [], "split": ["--state-fraction", "0.65"]}[layout]
    split = {"shared": "", "split": "\n  cache.layout: [split]\n  cache.state_fraction: [0.65]"}
    run("run", experiment_of(tmp_path, trace, f"""
sweep:
  cache.memory: [{", ".join(sizes)}]{split[layout]}
"""), "--out", tmp_path / "runs")  # fmt: skip
    rows = table(tmp_path / "runs" / "summary.csv")
    assert [int(row["num_refused"]) for row in rows] == num_refused
    common = ["--model", "qwen3.5-0.8b", "--layout", layout, *fraction]
    told = run("curve", trace, *common, "--grid", ",".join(sizes), "--out", tmp_path / "g").output
    grid = table(tmp_path / "g" / "curve.csv")
    run("bound", trace, *common, "--memory", ",".join(sizes), "--out", tmp_path / "b")
    bound = table(tmp_path / "b" / "bound.csv")
    for row, point, bracket in zip(rows, grid, bound, strict=True):
        assert float(point["token_hit_rate"]) == float(row["token_hit_rate"])
        assert point["num_refused"] == row["num_refused"]
        assert float(bracket["upper"]) == pytest.approx(
            float(row["bound_token_hit_rate"]), abs=1e-6
        )
        assert float(bracket["lower"]) <= float(row["feasible_token_hit_rate"]) + 1e-6
    assert told.count("of 30 requests never fit") == sum(map(bool, num_refused))


# A page of 16 tokens takes 192 KiB, a state 18.63 MiB; a page and a state 18.82 MiB.
@pytest.mark.parametrize(
    ("memory", "options", "says"),
    [
        ("18.8MiB", ["--layout", "shared"], r"18.8 MiB, too little for a page and a state; "
         r"allowed: at least 18.82 MiB of it"),
        ("60MiB", ["--layout", "split", "--state-fraction", "0.3"],
         r"18 MiB, too little for one state; allowed: at least 18.63 MiB of it"),
        ("18.7MiB", ["--layout", "split", "--state-fraction", "0.999"],
         r"too little for one page of KV; allowed: at least 192 KiB of it"),
    ],
)  # fmt: skip
def test_a_memory_that_runs_refuse_is_refused_in_their_words(
    trace, tmp_path, memory, options, says
):
    common = ["--model", "qwen3.5-0.8b", *options, "--out", tmp_path / "out"]
    for command in (["curve", trace, "--grid"], ["bound", trace, "--memory"]):
        with pytest.raises(UserError, match=says):
            run(*command, f"1GiB,{memory}", *common)
    changes = [f"cache.memory={memory}", "cache.layout=" + options[1]]
    if "split" in options:
        changes.append(f"cache.state_fraction={options[3]}")
    pairs = [text for change in changes for text in ("--set", change)]
    with pytest.raises(UserError, match=says):
        run("run", experiment_of(tmp_path, trace, "sweep: null"), *pairs, "--out", tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_a_bound_of_every_cache_serves_what_one_cache_refuses(trace, tmp_path):
    """20 MiB hold no request of the research cache, but a prefix and a state of others."""
    for more, is_zero in ((["--any-cache"], False), ([], True)):
        run("bound", trace, "--model", "qwen3.5-0.8b", "--memory", "20MiB", *more,
            "--out", tmp_path / "out", "--force")  # fmt: skip
        [row] = table(tmp_path / "out" / "bound.csv")
        assert (float(row["upper"]) == 0) == is_zero


def experiment_of(tmp_path, trace, sweep):
    path = tmp_path / "swept.yaml"
    head = EXPERIMENT.split("sweep:")[0].replace("PATH", str(trace))
    path.write_text(head.replace(", checkpoint: prompt_end", "") + sweep)
    return path


def test_a_grid_of_an_experiment_has_its_policies_and_one_pass_names_what_it_leaves(
    trace, tmp_path
):
    path = experiment_of(tmp_path, trace, """
sweep:
  cache.memory: [100MiB]
  cache.eviction: [lru, lfu, {name: lru, refresh: consumed}]
  cache.thinning: [null, {name: path_cap, max_states: 2}]
""")  # fmt: skip
    run("curve", path, "--grid", "100MiB", "--out", tmp_path / "grid")
    assert len(table(tmp_path / "grid" / "curve.csv")) == 6
    told = run("curve", path, "--out", tmp_path / "curve").output
    for left in ("lfu", "refresh=consumed", "path_cap"):
        assert f"{left}" in told
    assert {row["checkpoint"] for row in table(tmp_path / "curve" / "curve.csv")} == {"prompt_end"}


def test_set_and_options_count_for_a_bare_trace(trace, tmp_path):
    out = tmp_path / "out"
    run("curve", trace, "--set", "model=qwen3.5-0.8b", "--set", "cache.layout=split", "--set",
        "sweep={cache.checkpoint: [branch, all_blocks, {name: every, tokens: 64}]}",
        "--out", out)  # fmt: skip
    rows = table(out / "curve.csv")
    assert {row["checkpoint"] for row in rows} == {"all_blocks", "every(tokens=64)"}
    assert "state_slots" in rows[0]
    bound = ["bound", trace, "--model", "qwen3.5-0.8b", "--memory", "1GiB", "--steps", 20, "--out"]
    run(*bound, tmp_path / "all")
    run(*bound, tmp_path / "few", "--set", "trace.first=3")
    ideals = [float(table(tmp_path / name / "bound.csv")[0]["ideal"]) for name in ("all", "few")]
    assert ideals[0] > ideals[1]


def test_seconds_are_those_of_a_rank_with_its_all_reduces(trace, tmp_path):
    """Over a link of a byte a second all time is all-reduces, and so a matter of tokens."""
    bound = ["bound", trace, "--model", "qwen3.5-0.8b", "--memory", "1GiB", "--steps", 20]
    bound += ["--set", "tp=2"]
    run(*bound, "--out", tmp_path / "tokens")
    slow = "{name: h200, link_bytes_per_s: 1}"
    run(*bound, "--reward", "seconds", "--gpu", slow, "--out", tmp_path / "slow")
    run(*bound, "--reward", "seconds", "--gpu", "h200", "--out", tmp_path / "fast")
    ideals = [
        float(table(tmp_path / name / "bound.csv")[0]["ideal"])
        for name in ("tokens", "slow", "fast")
    ]
    assert ideals[1] == pytest.approx(ideals[0], rel=1e-6)
    assert ideals[2] != pytest.approx(ideals[0], rel=1e-6)


def test_a_trace_may_have_any_name(trace, tmp_path):
    path = trace.rename(tmp_path / "Gespräche 3 (neu).jsonl")
    run("curve", path, "--model", "qwen3.5-0.8b", "--no-bound", "--out", tmp_path / "curve")
    memory = ["--model", "qwen3.5-0.8b", "--memory", "1GiB"]
    run("bound", path, *memory, "--steps", 20, "--out", tmp_path / "bound")
    assert table(tmp_path / "curve" / "curve.csv")
    assert table(tmp_path / "bound" / "bound.csv")


def test_every_run_has_a_folder_of_its_own_and_overwrites_nothing_unasked(
    trace, tmp_path, monkeypatch
):
    monkeypatch.chdir(tmp_path)
    curve = ["curve", trace, "--model", "qwen3.5-0.8b"]
    run(*curve)
    run(*curve, "--layout", "split", "--checkpoint", "all_blocks")
    run(*curve, "--grid", "1GiB")
    run("curve", trace, "--blocks")
    run("bound", trace, "--model", "qwen3.5-0.8b", "--memory", "1GiB", "--steps", 10)
    assert sorted(path.name for path in (tmp_path / "results").iterdir()) == [
        "small-bound-qwen3.5-0.8b-shared", "small-curve-blocks", "small-curve-grid-qwen3.5-0.8b",
        "small-curve-shared-qwen3.5-0.8b", "small-curve-split-qwen3.5-0.8b",
    ]  # fmt: skip
    file = tmp_path / "results" / "small-curve-shared-qwen3.5-0.8b" / "curve.csv"
    before = file.read_bytes()
    with pytest.raises(UserError, match="has a curve.csv already; allowed: another folder, or --f"):
        run(*curve, "--checkpoint", "all_blocks")
    assert file.read_bytes() == before
    run(*curve, "--checkpoint", "all_blocks", "--force")
    assert file.read_bytes() != before


def test_a_sample_streams_with_its_warm_up_and_wants_content(trace, tmp_path):
    out = tmp_path / "out"
    run("curve", trace, "--blocks", "--warmup", 0.5, "--out", out)
    exact = {row["blocks"]: float(row["token_hit_rate"]) for row in table(out / "curve.csv")}
    with mock.patch("hybridsim.analysis.inputs.read_trace", side_effect=AssertionError):
        run("curve", trace, "--blocks", "--warmup", 0.5, "--sample", 1, "--out", out, "--force")
    found = {row["blocks"]: float(row["token_hit_rate"]) for row in table(out / "curve.csv")}
    both = exact.keys() & found.keys()
    assert both >= {"1", "2", "4"}
    assert [found[size] for size in both] == pytest.approx([exact[size] for size in both])
    lengths = tmp_path / "lengths.csv"
    lengths.write_text("TIMESTAMP,ContextTokens,GeneratedTokens\n2023-11-16 18:17:03.97,20,3\n")
    with pytest.raises(UserError, match="lengths"):
        run("curve", lengths, "--blocks", "--sample", 1, "--out", tmp_path / "new")
    assert not (tmp_path / "new").exists()


@pytest.mark.parametrize(
    "command", [["curve"], ["curve", "--grid", "1GiB"], ["bound", "--memory", "1GiB"],
                ["plan", "--memory", "1GiB"]], ids=" ".join,
)  # fmt: skip
def test_out_that_names_a_file_is_an_error_and_leaves_it(trace, tmp_path, command):
    (tmp_path / "file").write_text("mine")
    for out in (tmp_path / "file", tmp_path / "file" / "below"):
        with pytest.raises(UserError, match=r"--out: .*file' is not a folder; allowed: a folder"):
            run(command[0], trace, *command[1:], "--model", "qwen3.5-0.8b", "--out", out)
    assert (tmp_path / "file").read_text() == "mine"
    assert {path.name for path in tmp_path.iterdir()} == {"small.jsonl", "file"}


RECURRENT = """{hidden: 64, vocab: 100, pattern: L, layers: {L: {mlp: {intermediate: 64}, recurrent:
  {kind: gated_deltanet, num_key_heads: 1, num_value_heads: 1, key_dim: 16, value_dim: 16,
   conv_kernel: 4}}}}"""


def test_a_model_of_states_alone_has_curves_but_no_split(trace, tmp_path):
    arguments = ["curve", trace, "--set", f"model={RECURRENT}", "--checkpoint", "all_blocks",
                 "--out", tmp_path / "out", "--force"]  # fmt: skip
    run(*arguments)
    assert float(table(tmp_path / "out" / "curve.csv")[-1]["token_hit_rate"]) > 0.5
    run(*arguments, "--grid", "1MiB", "--eviction", "lfu")
    for more in ([], ["--grid", "1MiB", "--state-fraction", "0.5"]):
        with pytest.raises(UserError, match="--layout: inline has no KV"):
            run(*arguments, *more, "--layout", "split")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["curve", "TRACE"], "--model: is missing"),
        (["curve", "nowhere.jsonl", "--model", "qwen3.5-0.8b"], "does not exist"),
        (["curve", "TRACE", "--model", "qwen"], "unknown name"),
        (["curve", "TRACE", "--model", "qwen3.5-0.8b", "--checkpoint", "branch"], "--grid"),
        (["curve", "TRACE", "--model", "qwen3.5-0.8b", "--refresh", "all"], "path, named, again"),
        (["curve", "TRACE", "--model", "qwen3.5-0.8b", "--eviction", "lfu"], "--eviction: changes"),
        (["curve", "TRACE", "--model", "qwen3.5-0.8b", "--grid", "1GiB", "--eviction", "lfru"],
         "--eviction: unknown name 'lfru'"),
        (["curve", "TRACE", "--model", "qwen3.5-0.8b", "--grid", "1GiB", "--eviction", "{"],
         "--eviction.*not valid YAML"),
        (["curve", "TRACE", "--model", "qwen3.5-0.8b", "--grid", "1GiB", "--eviction", "coverage"],
         "never against KV"),
        (["curve", "TRACE", "--model", "qwen3.5-0.8b", "--set", "cache.pages=3"], "cache.pages"),
        (["curve", "TRACE", "--model", "qwen3.5-0.8b", "--sample", "0.5"], "--sample: changes"),
        (["bound", "TRACE", "--model", "qwen3.5-0.8b", "--memory", "1GiB", "--set", "x"],
         "--set x: is no override"),
        (["curve", "TRACE", "--model", "llama-3.1-8b", "--layout", "split"], "no recurrent"),
        (["curve", "TRACE", "--blocks", "--sample", "2"], "> 0 and <= 1"),
        (["bound", "TRACE", "--model", "qwen3.5-0.8b"], "--memory: is missing"),
        (["bound", "TRACE", "--model", "qwen3.5-0.8b", "--memory", "much"], "not a size"),
        (["bound", "TRACE", "--model", "qwen3.5-0.8b", "--memory", "1GiB", "--reward", "love"],
         "tokens, flops, seconds"),
        (["bound", "TRACE", "--model", "qwen3.5-0.8b", "--memory", "1GiB", "--reward", "seconds"],
         "--gpu: is missing"),
        (["bound", "TRACE", "--model", "qwen3.5-0.8b", "--memory", "1GiB", "--reward", "seconds",
          "--gpu", "{"], "--gpu: '{' is neither a name nor a YAML mapping"),
        (["bound", "TRACE", "--model", "qwen3.5-0.8b", "--memory", "1GiB", "--reward", "seconds",
          "--gpu", "{name: h100, cost: measured}"], "--gpu.cost: no profile of qwen3.5-0.8b"),
        (["bound", "TRACE", "--model", "qwen3.5-0.8b", "--memory", "1GiB", "--layout", "split"],
         "--state-fraction: is missing"),
        (["bound", "TRACE", "--model", "qwen3.5-0.8b", "--memory", "1GiB", "--insertion", "no"],
         "forced, bypass"),
    ],
)  # fmt: skip
def test_bad_input_is_named(trace, tmp_path, arguments, message):
    replaced = [trace if argument == "TRACE" else argument for argument in arguments]
    with pytest.raises(UserError, match=message):
        run(*replaced, "--out", tmp_path / "out")
    assert not (tmp_path / "out").exists()
