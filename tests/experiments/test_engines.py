"""Engines from a config: the contract's mappings, their defaults, and what is refused."""

from pathlib import Path

import pytest
from rich.console import Console
from typer.testing import CliRunner

from experiments.helpers import read_summary, write_experiment
from hybridsim.build import build_cache
from hybridsim.cli.app import app
from hybridsim.config import RunConfig, load_experiment, validate
from hybridsim.errors import UserError
from hybridsim.records import LOSS_REASONS
from hybridsim.request import Request, Spans
from hybridsim.sweep import command

TRACE = {"format": "generate", "generator": "chat", "num_sessions": 4}
SGLANG = {
    "name": "sglang-0.5.23", "strategy": "extra_buffer", "track_interval": 256, "chunk_size": 64,
    "chunked_prefill_size": 8192, "overlap": True, "eviction_policy": "lru",
    "max_states_per_path": -1, "int8_ckpt": False,
}  # fmt: skip
VLLM = {
    "name": "vllm-0.33.0", "mamba_mode": "align", "block_size": 544,
    "max_num_batched_tokens": 8192, "max_num_seqs": 128, "max_model_len": 32768, "retention": 0,
    "prefix_match_unit": None, "internal_checkpoint": None, "spec_k": 0, "eagle_drop": False,
    "hash_lookahead": 0, "reserve_full_isl": True,
}  # fmt: skip


def config(engine, cache, model="qwen3.5-0.8b") -> RunConfig:
    return validate(RunConfig, {"trace": TRACE, "model": model, "engine": engine, "cache": cache})


def hits(engine, cache, requests):
    built = build_cache(config(engine, cache))
    records = built.replay(requests, [0] * len(requests), lambda done, total: None)
    return [record.num_hit_tokens for record in records]


def tokens(*pairs: tuple[int, int]) -> Spans:
    return Spans.of(list(pairs))


def test_the_mapping_of_sglang_takes_the_recorded_decisions():
    # c shared 1000 + 150 unique, out 10: ../shared/spec/sglang-0.5.23.md, results of section 7
    requests = [
        Request(str(i), tokens((0, 1000), (i, 150)), Spans.unknown(10)) for i in range(1, 6)
    ]
    cache = {"kv_tokens": 8192, "state_slots": 64, "page_size": 1}
    assert hits(SGLANG, cache, requests) == [0, 0, 960, 960, 960]
    assert hits("sglang-0.5.23", cache, requests) == [0, 0, 960, 960, 960]
    assert hits({"name": "sglang-0.5.23", "strategy": "no_buffer"}, cache, requests) == [0] * 5


def test_the_mapping_of_vllm_takes_the_recorded_decisions():
    # c: 1500 shared + 700, four times: ../shared/spec/vllm-0.33.0.md, results of section 7
    requests = [Request(str(i), tokens((0, 1500), (i, 700)), Spans.unknown(4)) for i in range(1, 5)]
    assert hits(VLLM, {"num_blocks": 200}, requests) == [0, 0, 1088, 1088]
    assert hits("vllm-0.33.0", {"num_blocks": 200}, requests) == [0, 0, 1088, 1088]
    assert hits("vllm-0.33.0", {"num_blocks": 14}, requests) == [0, 0, 0, 0]
    dense = {"name": "vllm-0.27.1", "mamba_mode": "all"}
    assert hits(dense, {"num_blocks": 200}, requests) == [0, 1088, 1088, 1088]


def test_pools_split_from_a_memory_as_the_engines_do():
    # 2 GiB, qwen3.5-0.8b: 321 blocks of 6,684,672 bytes (the same spec, section 1)
    assert build_cache(config("vllm-0.33.0", {"memory": "2GiB"})).capacity.num_blocks == 321
    # SGLang: floor((M r / (1 + r) - b) / b) slots with r = 0.9, b = 18 MiB + 648 KiB = 19,537,920
    memory, state = 2 * 2**30, 18 * 2**20 + 648 * 2**10
    slots = int((memory * 0.9 / 1.9 - state) // state)
    capacity = build_cache(config("sglang-0.5.23", {"memory": "2GiB"})).capacity
    assert (capacity.state_slots, capacity.kv_tokens) == (
        slots,
        (memory - (slots + 1) * state) // 12288,
    )
    halved = build_cache(config("sglang-0.5.23", {"memory": "2GiB", "state_fraction": 0.5}))
    assert halved.capacity.state_slots == int((memory * 0.5 - state) // state)
    fixed = {"name": "sglang-0.5.23", "max_mamba_cache_size": 20}
    assert build_cache(config(fixed, {"memory": "2GiB"})).capacity.state_slots == 20


BAD = [
    ({**SGLANG, "trak_interval": 1}, {"kv_tokens": 9, "state_slots": 9}, "engine.trak_interval"),
    ({**SGLANG, "strategy": "lazy"}, {"kv_tokens": 9, "state_slots": 9}, "engine.strategy"),
    ({**SGLANG, "kv_tokens": 5}, {"kv_tokens": 9, "state_slots": 9}, "engine.kv_tokens"),
    (SGLANG, {"kv_tokens": 9}, "cache.state_slots"),
    (SGLANG, {"memory": "unlimited"}, "cache.memory"),
    (SGLANG, {"memory": "20MB"}, "cache.memory"),
    (SGLANG, {"num_blocks": 9}, "cache.num_blocks"),
    ({**SGLANG, "mamba_full_memory_ratio": 1.0}, {"kv_tokens": 9, "state_slots": 9},
     "engine.mamba_full_memory_ratio"),
    ({**SGLANG, "mamba_full_memory_ratio": "big"}, {"memory": "2GiB"},
     "engine.mamba_full_memory_ratio"),
    ({**SGLANG, "mamba_full_memory_ratio": 1.0}, {"memory": "2GiB", "state_fraction": 0.5},
     "cache.state_fraction"),
    ({**SGLANG, "strategy": "no_buffer"}, {"kv_tokens": 640, "state_slots": 9, "page_size": 64},
     "cache.page_size"),
    ({**VLLM, "mamba_mode": "all"}, {"num_blocks": 9}, "engine.mamba_mode"),
    ({**VLLM, "num_blocks": 9}, {"num_blocks": 9}, "engine.num_blocks"),
    ({**VLLM, "retention": 5}, {"num_blocks": 9}, "engine.retention"),
    (VLLM, {"num_blocks": 1}, "cache.num_blocks"),
    (VLLM, {"memory": "1MB"}, "cache.memory"),
    (VLLM, {"kv_tokens": 9, "state_slots": 9}, "cache.kv_tokens"),
    ("vllm-0.34.0", {"num_blocks": 9}, "engine"),
]  # fmt: skip


@pytest.mark.parametrize(("engine", "cache", "place"), BAD)
def test_bad_engine_options_name_their_place(engine, cache, place):
    with pytest.raises(UserError) as caught:
        build_cache(config(engine, cache))
    assert caught.value.place == place


def test_engines_model_hybrids_with_attention_only():
    with pytest.raises(UserError, match="no hybrid"):
        build_cache(config(SGLANG, {"kv_tokens": 9, "state_slots": 9}, "llama-3.1-8b"))


def test_engine_show_prints_what_a_user_asks_before_start():
    asked = ["engine", "show", "vllm-0.33.0", "--model", "qwen3.5-0.8b", "--memory", "2GiB"]
    shown = CliRunner().invoke(app, asked).output
    for number in ("544 tokens", "6684672", "321, of which 320 usable", "2.64 %"):
        assert number in " ".join(shown.split())
    shown = CliRunner().invoke(app, [*asked[:2], "sglang-0.5.23", *asked[3:]]).output
    assert "limited by state slots" in " ".join(shown.replace("│", " ").split())


@pytest.mark.parametrize(
    ("engine", "option", "said"),
    [
        ("sglang-0.5.23", "foo=1", ["engine.foo", "max_running_requests", "strategy"]),
        ("sglang-0.5.23", "max_runing_requests=1", ["did you mean 'max_running_requests'"]),
        ("sglang-0.5.23", "max_mamba_cache_size=2", ["engine.max_mamba_cache_size", "at least 5"]),
        ("sglang-0.5.23", "kv_tokens=9", ["engine.kv_tokens", "under cache"]),
        ("vllm-0.33.0", "foo=1", ["engine.foo", "max_model_len"]),
        ("vllm-0.33.0", "block_size=99999999", ["--memory", "room for 2 to 10,000,000"]),
        ("vllm-0.33.0", "user_block_size=many", ["engine.user_block_size", "'many'", "integer"]),
        ("vllm-0.33.0", "max_model_len", ["--option", "key=value"]),
    ],
)
def test_engine_show_names_what_may_be_set(engine, option, said):
    asked = ["engine", "show", engine, "--model", "qwen3.5-0.8b", "--memory", "2GiB", "-o", option]
    error = CliRunner().invoke(app, asked).exception
    assert isinstance(error, UserError)
    for part in said:
        assert part in str(error)


def test_a_sweep_over_engines_explains_every_lost_token(tmp_path: Path):
    experiment = {
        "name": "engines",
        "trace": TRACE,
        "model": "qwen3.5-0.8b",
        "cache": {"memory": "1GiB"},
        "sweep": {"engine": ["sglang-0.5.23", "vllm-0.33.0", {"name": "vllm-0.27.1"}]},
    }
    path = write_experiment(tmp_path, experiment)
    load_experiment(path)
    out = tmp_path / "out"
    assert command.run(path, (), out_dir=out, console=Console(quiet=True)) == 0
    rows = read_summary(out)
    assert len(rows) == 3
    for row in rows:
        prompt_tokens = float(row["num_prompt_tokens"])
        ideal = float(row["ceiling_token_hit_rate"]) * prompt_tokens
        hit = float(row["token_hit_rate"]) * prompt_tokens
        lost = sum(int(row[f"lost_tokens_{reason}"]) for reason in LOSS_REASONS)
        assert row["num_refused"] == "0"
        assert lost == round(ideal - hit)
        assert lost > 0
    assert (out / "plots" / "losses-over-engine.png").stat().st_size > 10_000


# ceil(32768 / 544) = 61 blocks of attention and 3 groups of 2 states: 67 in all; ceil(544 / 544)
# and the same states: 7. A block has 6 layers of 544 x 2048 B, so 67 take 427 MiB.
@pytest.mark.parametrize(
    ("options", "cache", "place"),
    [
        ({}, {"num_blocks": 10_000}, "engine.max_model_len"),
        ({"max_model_len": 32768}, {"num_blocks": 66}, "cache.num_blocks"),
        ({"max_model_len": 32768}, {"memory": "420MiB"}, "cache.memory"),
        ({"max_model_len": 32768}, {"num_blocks": 67}, None),
        ({"max_model_len": 32768}, {"memory": "430MiB"}, None),
        ({"max_model_len": 544}, {"num_blocks": 7}, None),
    ],
)
def test_what_vllm_refuses_at_its_start_is_refused_when_the_config_is_read(
    tmp_path, options, cache, place
):
    """A trace of any length is served where the config passes: prompts that are too long cold."""
    engine = {"name": "vllm-0.33.0", "check_startup": True, **options}
    file = tmp_path / "long.jsonl"
    file.write_text('{"id": "a", "prompt": [["s", 40000]], "output": 9}\n')
    trace = {"format": "segments", "path": str(file)}
    data = {"name": "x", "model": "qwen3.5-0.8b", "engine": engine, "cache": cache, "trace": trace}
    path = write_experiment(tmp_path, data)
    quiet = Console(quiet=True)
    if place is None:
        assert command.run(path, [], out_dir=tmp_path / "out", console=quiet) == 0
        return
    for dry_run in (True, False):
        with pytest.raises(UserError, match=rf"experiment.yaml(:\d+)?: {place}") as caught:
            command.run(path, [], out_dir=tmp_path / "out", console=quiet, dry_run=dry_run)
        assert "allowed: " in caught.value.message
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("engine", ["vllm-0.33.0", "vllm-0.27.1", "sglang-0.5.23"])
@pytest.mark.parametrize("memory", ["1KiB", "10MiB", "19MiB", "60MiB", "1GiB", "1TiB", "900TiB"])
@pytest.mark.parametrize("options", [{}, {"check_startup": True}, {"max_model_len": 0}])
def test_engine_show_answers_where_a_run_would_start(engine, memory, options):
    said, run_says = [], []
    given = [text for key, value in options.items() for text in ("-o", f"{key}={value}")]
    asked = ["engine", "show", engine, "--model", "qwen3.5-0.8b", "--memory", memory, *given]
    result = CliRunner().invoke(app, asked)
    if isinstance(result.exception, UserError):
        said.append(result.exception.message)
    else:
        assert result.exit_code == 0
    try:
        build_cache(config({"name": engine, **options}, {"memory": memory}))
    except UserError as error:
        run_says.append(error.message)
    assert said == run_says
