"""`hybridsim curve` and `hybridsim bound`, from files to tables, and how they refuse bad input."""

import csv

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


@pytest.mark.parametrize("refresh", ["path", "named"])
def test_curve_writes_a_rising_table_and_a_picture(trace, tmp_path, refresh):
    out = tmp_path / "out"
    run("curve", trace, "--model", "qwen3.5-0.8b", "--out", out, "--checkpoint", "all_blocks",
        "--refresh", refresh)  # fmt: skip
    rates = [float(row["token_hit_rate"]) for row in table(out / "curve.csv")]
    assert rates == sorted(rates)
    assert rates[-1] > rates[0]
    assert (out / "curve.png").stat().st_size > 1000


def test_curve_of_a_split_pool_writes_a_surface(trace, tmp_path):
    out = tmp_path / "out"
    run("curve", trace, "--model", "qwen3.5-0.8b", "--layout", "split", "--out", out,
        "--checkpoint", "all_blocks")  # fmt: skip
    assert {"kv_bytes", "state_slots", "token_hit_rate"} <= set(table(out / "curve.csv")[0])
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
    run("curve", trace, "--blocks", "--sample", 1.0, "--out", out)
    for row in table(out / "curve.csv"):
        if row["blocks"] in exact:
            assert float(row["token_hit_rate"]) == pytest.approx(float(exact[row["blocks"]]))


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["curve", "TRACE"], "--model: is missing"),
        (["curve", "nowhere.jsonl", "--model", "qwen3.5-0.8b"], "does not exist"),
        (["curve", "TRACE", "--model", "qwen"], "unknown name"),
        (["curve", "TRACE", "--model", "qwen3.5-0.8b", "--checkpoint", "branch"], "--grid"),
        (["curve", "TRACE", "--model", "qwen3.5-0.8b", "--refresh", "all"], "path, named"),
        (["curve", "TRACE", "--model", "llama-3.1-8b", "--layout", "split"], "no recurrent"),
        (["curve", "TRACE", "--blocks", "--sample", "2"], "> 0 and <= 1"),
        (["bound", "TRACE", "--model", "qwen3.5-0.8b"], "--memory: is missing"),
        (["bound", "TRACE", "--model", "qwen3.5-0.8b", "--memory", "much"], "not a size"),
        (["bound", "TRACE", "--model", "qwen3.5-0.8b", "--memory", "1GiB", "--reward", "love"],
         "tokens, flops, seconds"),
        (["bound", "TRACE", "--model", "qwen3.5-0.8b", "--memory", "1GiB", "--reward", "seconds"],
         "--gpu: is missing"),
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
