"""Experiment files: types, sweeps, overrides, places in errors, and a run's name."""

import textwrap
from pathlib import Path

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from hybridsim.config import expand, load_experiment, parse_source
from hybridsim.errors import UserError

BASE = """\
name: demo
trace: {format: mooncake, path: x.jsonl}
model: qwen3.5-0.8b
cache:
  memory: 8GiB
  state_fraction: 0.3
"""


def runs_of(text: str) -> list[dict]:
    return [run.config.model_dump(mode="json") for run in expand(parse_source(text, "e.yaml")).runs]


def with_overrides(tmp_path: Path, text: str, *overrides: str):
    path = tmp_path / "e.yaml"
    path.write_text(text)
    return load_experiment(path, overrides)


def test_a_sweep_is_a_product_in_the_order_of_the_file() -> None:
    text = BASE + "sweep:\n  cache.memory: [1GiB, 2GiB]\n  cache.checkpoint: [none, branch]\n"
    swept = [run.swept for run in expand(parse_source(text, "e.yaml")).runs]
    assert swept == [
        {"cache.memory": memory, "cache.checkpoint": checkpoint}
        for memory in ("1GiB", "2GiB")
        for checkpoint in ("none", "branch")
    ]


def test_a_list_of_sweeps_is_a_union_without_repeats() -> None:
    text = BASE + "sweep:\n- {seed: [0, 1], tp: [1, 2]}\n- {seed: [1, 2]}\n"
    experiment = expand(parse_source(text, "e.yaml"))
    found = [(run.config.seed, run.config.tp) for run in experiment.runs]
    # (1, 1) is in both products
    assert found == [(0, 1), (0, 2), (1, 1), (1, 2), (2, 1)]
    assert experiment.axes == ("seed", "tp")


def test_a_name_and_a_mapping_with_that_name_are_the_same_run() -> None:
    short = expand(parse_source(BASE + "engine: research\n", "e.yaml")).runs[0]
    long = expand(parse_source(BASE + "engine: {name: research}\n", "e.yaml")).runs[0]
    assert short.run_id == long.run_id


def test_the_options_of_a_named_policy_can_be_swept(tmp_path: Path) -> None:
    text = BASE.replace("  memory", "  checkpoint: every\n  memory")
    experiment = with_overrides(tmp_path, text, "sweep={cache.checkpoint.tokens: [64, 128]}")
    policies = [run.config.cache.checkpoint for run in experiment.runs]
    assert [(policy.name, policy.options) for policy in policies] == [
        ("every", {"tokens": 64}),
        ("every", {"tokens": 128}),
    ]


def test_an_override_is_typed_by_yaml(tmp_path: Path) -> None:
    experiment = with_overrides(
        tmp_path, BASE, "cache.page_size=64", "trace.first=null", "trace.warmup=5e-1"
    )
    [run] = experiment.runs
    assert run.config.cache.page_size == 64
    assert run.config.trace.first is None
    assert run.config.trace.warmup == 0.5


def test_an_override_of_a_swept_key_keeps_its_column(tmp_path: Path) -> None:
    text = BASE + "sweep: {cache.memory: [1GiB, 2GiB], seed: [0, 1]}\n"
    experiment = with_overrides(tmp_path, text, "cache.memory=3GiB")
    assert [run.swept for run in experiment.runs] == [
        {"cache.memory": "3GiB", "seed": 0},
        {"cache.memory": "3GiB", "seed": 1},
    ]


@pytest.mark.parametrize(
    ("written", "value"),
    [
        ("8GiB", 8 * 2**30),
        ("8589934592", 8 * 2**30),
        ("1.5GiB", 3 * 2**29),
        ("500MB", 500_000_000),
        ("1e9", 10**9),
        ("unlimited", "unlimited"),
    ],
)
def test_memory_is_read_in_any_unit(written: str, value: object) -> None:
    [run] = expand(parse_source(BASE.replace("8GiB", written), "e.yaml")).runs
    assert run.config.cache.memory == value


@pytest.mark.parametrize(
    ("text", "value"),
    [("no", "no"), ("1:30", "1:30"), ("010", "010"), ("1e3", 1000.0), ("~", None)],
)
def test_scalars_follow_yaml_1_2(text: str, value: object) -> None:
    assert parse_source(f"key: {text}\n", "e.yaml").data == {"key": value}


def test_a_runs_own_file_gives_the_same_run_again() -> None:
    text = BASE + "sweep: {cache.checkpoint: [none, {name: every, tokens: 32}], seed: [3]}\n"
    for run in expand(parse_source(text, "e.yaml")).runs:
        [again] = expand(parse_source(run.to_yaml(), "again.yaml")).runs
        assert again.run_id == run.run_id
        assert again.config == run.config


configs = st.fixed_dictionaries(
    {
        "name": st.just("any"),
        "trace": st.fixed_dictionaries(
            {"format": st.sampled_from(["mooncake", "weka"]), "warmup": st.floats(0, 0.99)},
            optional={"first": st.integers(1, 10**6), "jitter": st.booleans()},
        ),
        "model": st.sampled_from(["a", "b"]),
        "cache": st.fixed_dictionaries(
            {
                "memory": st.one_of(st.integers(1, 2**50), st.just("unlimited")),
                "page_size": st.integers(1, 4096),
                "checkpoint": st.one_of(
                    st.sampled_from(["none", "branch"]),
                    st.fixed_dictionaries(
                        {"name": st.just("every"), "tokens": st.integers(1, 2**63 - 1)}
                    ),
                ),
            },
            optional={"state_fraction": st.floats(0.01, 0.99)},
        ),
        "seed": st.integers(0, 2**31),
    }
)


@given(configs)
def test_any_config_survives_the_way_to_a_file_and_back(data: dict) -> None:
    [run] = expand(parse_source(yaml.safe_dump(data), "e.yaml")).runs
    [again] = expand(parse_source(run.to_yaml(), "again.yaml")).runs
    assert (again.config, again.run_id) == (run.config, run.run_id)


@given(configs, configs)
def test_different_configs_have_different_names(one: dict, other: dict) -> None:
    [first] = expand(parse_source(yaml.safe_dump(one), "e.yaml")).runs
    [second] = expand(parse_source(yaml.safe_dump(other), "e.yaml")).runs
    assert (first.run_id == second.run_id) == (first.config == second.config)


def test_the_name_and_the_figures_do_not_change_a_run() -> None:
    [plain] = expand(parse_source(BASE, "e.yaml")).runs
    [other] = expand(parse_source(BASE.replace("demo", "x") + "plots: []\n", "e.yaml")).runs
    assert plain.run_id == other.run_id


@pytest.mark.parametrize(
    ("addition", "place"),
    [
        ("cach: 1\n", "e.yaml:7: cach"),
        ("scheduler:\n  max_num_seqs: 0\n", "e.yaml:8: scheduler.max_num_seqs"),
        ("sweep:\n  tp: [1,\n    0]\n", "e.yaml:9: sweep.tp"),
        ("sweep:\n  - tp: [1]\n  - tp: [1,\n      -3]\n", "e.yaml:10: sweep.1.tp"),
        ("plots:\n  - {kind: curve, x: seed}\n", "e.yaml:8: plots.0.x"),
        ("seed: 1\nseed: 2\n", "e.yaml:8: seed"),
        ("trace: {format: [}\n", "e.yaml:7"),
    ],
)
def test_an_error_names_file_line_and_key(addition: str, place: str) -> None:
    with pytest.raises(UserError) as error:
        expand(parse_source(BASE + addition, "e.yaml"))
    assert error.value.place == place


def test_all_findings_are_told_at_once() -> None:
    text = textwrap.dedent("""\
        name: demo
        trace: {format: mooncake}
        model: m
        cache: {memory: 1GiB, page_size: none, pagesize: 3}
        tp: x
    """)
    with pytest.raises(UserError) as error:
        expand(parse_source(text, "e.yaml"))
    for part in ("cache.page_size", "'none'", "cache.pagesize", "tp", "'x'"):
        assert part in str(error.value)
