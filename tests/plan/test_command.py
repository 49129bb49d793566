"""`hybridsim plan` from end to end: what it writes and prints, and how it fails."""

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from hybridsim.cli.app import app
from hybridsim.errors import UserError

ONE_POLICY = ["--checkpoint", "prompt_end"]
PROMPT = '[["sys", 600], ["q{0}", 90]]'


@pytest.fixture
def trace(tmp_path: Path) -> Path:
    """40 prompts of 690 tokens: 600 that all share, 90 that come back after 10 others."""
    path = tmp_path / "t.jsonl"
    lines = [
        f'{{"id": "{i}", "prompt": {PROMPT.format(i % 10)}, "output": [["a{i % 10}", 40]]}}'
        for i in range(40)
    ]
    path.write_text("\n".join(lines))
    return path


def plan(trace: Path, *arguments: str) -> tuple[str, dict]:
    """Standard output, and plan.json."""
    out = trace.parent / "out"
    command = ["plan", str(trace), "--model", "qwen3.5-0.8b", "--out", str(out), *arguments]
    result = CliRunner().invoke(app, command, catch_exceptions=False)
    assert result.exit_code == 0, result.output
    return result.output, json.loads((out / "plan.json").read_bytes())


def test_the_plan_is_written_drawn_and_can_be_run_again(trace, monkeypatch):
    output, found = plan(trace, "--memory", "100MiB,300MiB", *ONE_POLICY)
    out = trace.parent / "out"
    for name in ("trials.csv", "check.yaml", "surface.png", "settings-300MiB.png"):
        assert (out / name).stat().st_size > 0
    for told in ("check, a step less", "one GiB more", "confidence", "token hit rate"):
        assert told in output
    first = found["plans"][0]
    assert first["best"]["capacity"]["state_slots"] >= 1
    assert all(near is None or near["token_hit_rate"] <= first["best"]["token_hit_rate"] + 1e-4
               for near in (first["below"], first["above"]))  # fmt: skip
    for one in found["plans"]:  # the ideal: all share 600 of 690, 30 of 40 come back whole
        rates = [*one["by_policy"].values(), one["best"]["token_hit_rate"]]
        assert max(rates) <= one["bound_token_hit_rate"] <= (9 * 600 + 30 * 689) / (40 * 690) + 1e-9
        assert f"nothing hits more than {100 * one['bound_token_hit_rate']:.2f} %" in output
    monkeypatch.chdir(trace.parent)
    again = CliRunner().invoke(app, ["run", "out/check.yaml", "--out", "again"])
    assert again.exit_code == 0, again.output
    rows = (trace.parent / "again" / "summary.csv").read_text().splitlines()
    column = rows[0].split(",").index("token_hit_rate")
    rates = [float(row.split(",")[column]) for row in rows[1:]]
    planned = [one["best"]["token_hit_rate"] for one in found["plans"]]
    assert sorted(rates) == pytest.approx(sorted(planned))


def test_a_target_alone_plans_the_memory_that_reaches_it(trace):
    output, found = plan(trace, "--target", "0.5", *ONE_POLICY)
    target = found["target"]
    assert target["replayed"]["token_hit_rate"] >= 0.5
    assert target["replayed"]["misses_bytes"] < target["replayed"]["memory_bytes"]
    assert found["plans"][0]["best"]["token_hit_rate"] >= 0.5
    assert "by the one-pass curve" in " ".join(output.split())


def test_an_unreachable_target_says_what_is_the_most(trace):
    # All prompts come 4 times, so 3/4 of the requests hit at most 689 // 16 * 16 = 688 of 690.
    output, found = plan(trace, "--target", "0.999", *ONE_POLICY)
    assert (found["target"]["curve"], found["target"]["replayed"]) == (None, None)
    assert "not reachable" in output
    assert found["target"]["ceiling"] <= 0.75 * 688 / 690 + 1e-9
    assert found["plans"] == []


def test_sglang_gets_flags_that_give_the_pools(trace):
    output, found = plan(
        trace, "--memory", "600MiB", "--engine", "sglang-0.5.23",
        "--engine-option", "eviction_policy=lru", "--engine-option", "chunked_prefill_size=2048",
    )  # fmt: skip
    one = found["plans"][0]
    slots = one["best"]["capacity"]["state_slots"]
    assert one["flags"]["--max-mamba-cache-size"] == str(slots)
    # A server would choose these two by its backend and its GPU.
    assert one["flags"]["--mamba-radix-cache-strategy"] in one["label"]
    assert one["flags"]["--chunked-prefill-size"] == "2048"
    ratio = float(one["flags"]["--mamba-full-memory-ratio"].split()[0])
    # The server's sum for 0.8b: 18 layers, 19,537,920 bytes a state (model-shapes).
    share = 600 * 2**20 * ratio / (1 + ratio)
    assert int(share / 19_537_920 - 1) == slots
    assert one["best"]["token_hit_rate"] >= one["baseline"]["token_hit_rate"]
    assert all("eviction_policy" not in label for label in one["by_policy"])


def test_vllm_gets_retention_and_blocks_by_replay(trace):
    output, found = plan(
        trace, "--memory", "600MiB", "--engine", "vllm-0.33.0",
        "--engine-option", "max_num_batched_tokens=8192",
    )  # fmt: skip
    one = found["plans"][0]
    assert one["state_fraction"] is None
    assert int(one["flags"]["--num-gpu-blocks-override"]) > 2
    assert one["flags"]["--max-num-batched-tokens"] == "8192"
    assert one["best"]["token_hit_rate"] == max(one["by_policy"].values())
    assert not (trace.parent / "out" / "surface.png").exists()


def test_the_older_vllm_takes_its_retention_from_the_environment(trace):
    retention = ["--engine-option", "retention=544", "--engine-option", "mamba_mode=align"]
    _, found = plan(trace, "--memory", "600MiB", "--engine", "vllm-0.27.1", *retention)
    flags = found["plans"][0]["flags"]
    assert flags["VLLM_PREFIX_CACHE_RETENTION_INTERVAL (environment)"] == "544"
    assert flags["--mamba-cache-mode"] == "align"
    assert "prefix_cache_retention_interval" not in flags


def test_plans_for_two_engines_do_not_overwrite_each_other(trace, monkeypatch):
    monkeypatch.chdir(trace.parent)
    arguments = ["plan", "t.jsonl", "--model", "qwen3.5-0.8b", "--memory", "300MiB"]
    only = ["--engine-option", "chunked_prefill_size=2048", "--engine-option", "strategy=no_buffer"]
    sglang = ["--engine", "sglang-0.5.23", *only]
    for extra in (ONE_POLICY, sglang):
        CliRunner().invoke(app, [*arguments, *extra], catch_exceptions=False)
    found = {path.parent.name: json.loads(path.read_bytes()) for path in Path().rglob("plan.json")}
    assert {name: plan["engine"] for name, plan in found.items()} == {
        "t-plan-qwen3.5-0.8b-research": "research",
        "t-plan-qwen3.5-0.8b-sglang-0.5.23": "sglang-0.5.23",
    }


def test_what_is_set_for_a_bare_trace_is_in_the_plan_and_its_check(trace):
    _, found = plan(trace, "--memory", "300MiB", *ONE_POLICY, "--set", "trace.first=20",
                    "--set", "cache.page_size=32")  # fmt: skip
    assert found["num_requests"] == 20
    assert found["trace"]["first"] == 20
    assert found["plans"][0]["best"]["settings"]["cache.page_size"] == 32
    assert "first: 20" in (trace.parent / "out" / "check.yaml").read_text()


def test_seeds_are_tried_where_the_trace_is_drawn(tmp_path):
    path = tmp_path / "drawn.yaml"
    path.write_text(
        "name: drawn\nmodel: qwen3.5-0.8b\n"
        "trace: {format: generate, generator: chat, num_sessions: 8}\n"
        "cache: {memory: 1GiB, state_fraction: 0.5}\n"
    )
    out = tmp_path / "out"
    arguments = ["plan", str(path), "--memory", "300MiB", "--out", str(out), *ONE_POLICY]
    result = CliRunner().invoke(app, arguments, catch_exceptions=False)
    assert result.exit_code == 0
    seeds = json.loads((out / "plan.json").read_bytes())["plans"][0]["seeds"]
    assert [one["seed"] for one in seeds] == [1, 2]
    assert len({one["token_hit_rate"] for one in seeds}) == 2
    assert all(one["regret_points"] >= -1e-9 for one in seeds)


BAD = {
    "no memory": ([], "--memory: is missing"),
    "a size that is none": (["--memory", "many"], "--memory: 'many' is not a size"),
    "too little": (["--memory", "1MiB"], "--memory: 1 MiB .* at least"),
    "an engine that is none": (["--memory", "1GiB", "--engine", "sglan"], "unknown name 'sglan'"),
    "a target of 3": (["--target", "3"], "--target: 3.0; allowed"),
    "a step of 1": (["--memory", "1GiB", "--step", "1"], "--step: 1.0; allowed"),
    "a policy that is none": (
        ["--memory", "1GiB", "--checkpoint", "prompt_ned"], "unknown name 'prompt_ned'",
    ),
    "no hybrid": (["--memory", "1GiB", "--model", "llama-3.1-8b"], "no hybrid"),
    "an option of no engine": (
        ["--memory", "1GiB", "--engine", "sglang-0.5.23", "--engine-option", "fly=1"],
        "engine.fly: unknown name",
    ),
    "too little for vLLM": (
        ["--memory", "1MiB", "--engine", "vllm-0.33.0"], "--memory: .* room for 2 to",
    ),
    "too little for SGLang": (
        ["--memory", "1MiB", "--engine", "sglang-0.5.23"], "--memory: .* at least",
    ),
    "pages of vLLM": (
        ["--memory", "1GiB", "--engine", "vllm-0.33.0", "--page-size", "4"], "--page-size",
    ),
}  # fmt: skip


@pytest.mark.parametrize(("arguments", "message"), BAD.values(), ids=BAD)
def test_bad_input_is_an_error_of_the_user_and_leaves_nothing(trace, arguments, message):
    out = trace.parent / "out"
    command = ["plan", str(trace), "--model", "qwen3.5-0.8b", "--out", str(out), *arguments]
    with pytest.raises(UserError, match=message):
        CliRunner().invoke(app, command, catch_exceptions=False, standalone_mode=False)
    assert not out.exists()
