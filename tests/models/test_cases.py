"""Acceptance cases from public reports whose expectation is arithmetic on a model's shape."""

import pytest
import yaml

from hybridsim.models import ModelSpec, get_model


@pytest.fixture(scope="module")
def cases(shared_dir) -> dict[str, dict]:
    files = sorted((shared_dir / "cases").glob("case_*.yaml"))
    assert files
    return {file.stem: yaml.safe_load(file.read_text()) for file in files}


def gdn_model(shape: dict, tp: int = 1) -> ModelSpec:
    """A Gated DeltaNet hybrid of a case's geometry; widths that no byte depends on are made up."""
    width = shape["state_head_dim"]
    state = {"kind": "gated_deltanet", "num_key_heads": shape["k_heads"], "key_dim": width,
             "num_value_heads": shape["v_heads"], "value_dim": width,
             "conv_kernel": shape["conv_kernel"]}  # fmt: skip
    heads = shape["kv_heads"] * 8
    full = {"num_heads": heads, "num_kv_heads": shape["kv_heads"], "head_dim": shape["head_dim"]}
    return get_model(
        {
            "name": shape["name"], "hidden": 1024, "vocab": 1024, "tp": tp,
            "layers": {"L": {"recurrent": state}, "F": {"attention": full}},
            "pattern": "L" * shape["state_layers"] + "F" * shape["attn_layers"],
            "dtypes": {"state": shape["ssm_dtype"], "conv": shape["conv_dtype"]},
            "extra_conv_columns": shape["spec_columns"],
        }
    )  # fmt: skip


def test_the_state_bytes_of_every_case_with_a_geometry(cases):
    tensor_parallel = {"case_27": 4, "case_28": 2}  # 27 says tp; 28's slots are half a layer's
    checked = 0
    for name, case in cases.items():
        shape = case["model"]
        if "state_bytes_per_layer" not in shape:
            continue
        spec = gdn_model(shape, tensor_parallel.get(name, 1))
        (layer,) = set(spec.recurrent_layers)
        assert layer.state_bytes(spec.dtypes) == shape["state_bytes_per_layer"], name
        checked += 1
    assert checked >= 18


@pytest.mark.parametrize(
    "case_model",
    ["Qwen3.5-4B", "Qwen3.5-27B", "Qwen3.5-35B-A3B", "Qwen3.5-122B-A10B", "Qwen3-Next-80B-A3B"],
)
def test_the_catalogue_agrees_with_the_geometries_of_the_cases(cases, case_model):
    shapes = [x["model"] for x in cases.values() if x["model"].get("name") == case_model]
    shape = next(x for x in shapes if "state_bytes_per_layer" in x)
    ours = get_model(case_model.lower())
    theirs = gdn_model(shape | {"ssm_dtype": "float32", "spec_columns": 0})
    assert set(ours.recurrent_layers) == set(theirs.recurrent_layers)
    assert ours.kv_bytes_per_token == theirs.kv_bytes_per_token
    assert ours.state_bytes == theirs.state_bytes


def test_17_every_published_boot_line(cases):
    """State page and KV bytes of 15 configurations, by the models that the rows name."""
    num_rows = 0
    for row in cases["case_17"]["expected"]["rows"]:
        spec = _configured(row["config"])
        (attention,), (state,) = set(spec.attention_layers), set(spec.recurrent_layers)
        kv_bytes, state_bytes = (
            attention.kv_bytes_per_token(spec.dtypes),
            state.state_bytes(spec.dtypes),
        )
        assert state_bytes == row["state_bytes"], row["config"]
        assert kv_bytes == row["kv_bytes_per_token"], row["config"]
        unit = row["kernel_block"]
        block = unit * -(-state_bytes // (unit * kv_bytes))
        assert block == row["block"], row["config"]
        padding = 100 * (block * kv_bytes - state_bytes) / state_bytes
        assert padding == pytest.approx(row["padding_pct"], abs=0.006), row["config"]
        num_rows += 1
    assert num_rows == 15


def _configured(config: str) -> ModelSpec:
    """'Qwen3.8-27B bf16 state, fp8 KV, 3 draft tokens' -> the model with those formats."""
    models = {"Qwen3.5-4B": "qwen3.5-4b", "Qwen3.5-35B": "qwen3.5-35b-a3b", "27B": "qwen3.5-27b",
              "122B": "qwen3.5-122b-a10b", "Qwen3-Next": "qwen3-next-80b-a3b"}  # fmt: skip
    name = next(ours for theirs, ours in models.items() if theirs in config)
    dtypes: dict[str, str | int] = {"state": "bf16" if "bf16 state" in config else "fp32"}
    if "fp8 KV" in config:
        dtypes["kv"] = "fp8"
    if "int8 KV + 4 B scale per head" in config:
        dtypes |= {"kv": "int8", "kv_scale_bytes": 4}
    words = config.replace("+", " ").split()
    drafts = int(words[words.index("draft") - 1]) if "draft" in words else 0
    return get_model({"base": name, "dtypes": dtypes, "extra_conv_columns": drafts})


def test_18_kv_rates_states_and_crossovers(cases):
    for row in cases["case_18"]["expected"]["rows"]:
        spec = get_model(row["model"].lower())
        assert spec.kv_bytes_per_token == row["kv_bytes_per_token"]
        assert spec.kv_bytes(1024) / 2**20 == row["kv_mib_per_1024_tokens"]
        assert spec.state_bytes == row["state_bytes_fp32"]
        assert spec.with_dtypes(state="bf16").state_bytes == row["state_bytes_bf16"]
        assert spec.state_bytes // spec.kv_bytes_per_token == row["crossover_tokens"]


def test_19_bytes_of_the_pool(cases):
    """Group size 16: a block id is 16 pages of 784 tokens x 4096 B."""
    cache, expected = cases["case_19"]["cache"], cases["case_19"]["expected"]
    spec = get_model("qwen3.5-27b")
    id_bytes = spec.kv_bytes_per_token * cache["block"]
    assert cache["num_blocks"] * id_bytes == expected["pool_bytes"]
    assert id_bytes >= spec.state_bytes / 3  # three groups of recurrent layers


def test_27_slots_of_a_tensor_parallel_rank(cases):
    case = cases["case_27"]
    spec = get_model("qwen3.5-122b-a10b").for_rank(case["cache"]["tp"])
    assert spec.state_bytes == case["expected"]["slot_bytes"]
    budget_bytes = case["cache"]["state_budget_gib"] * 2**30
    # One slot is padding.
    assert int(budget_bytes // spec.state_bytes) - 1 == case["expected"]["slots"]


def test_37_draft_states(cases):
    """36 layers of 1 MiB: a 32-head model's rank of two."""
    expected = cases["case_37"]["expected"]
    rank = get_model("qwen3-next-80b-a3b").for_rank(2)
    assert rank.recurrent_bytes == 36 * 2**20
    assert 64 * 5 * rank.recurrent_bytes == expected["wasted_bytes"]
    assert 32 * 5 * rank.recurrent_bytes == expected["needed_bytes"]


def test_40_bytes_moved_between_prefill_and_decode(cases):
    case = cases["case_40"]["expected"]
    spec = get_model("qwen3.5-35b-a3b")
    for row in case["rows"]:
        # The last prompt token is computed again by the decode side.
        kv_bytes = spec.kv_bytes(row["prompt"] - 1)
        assert (kv_bytes, spec.state_bytes) == (row["kv_bytes"], row["state_bytes"])
        share = spec.state_bytes / (kv_bytes + spec.state_bytes)
        assert share == pytest.approx(row["state_share"], abs=6e-4)
    assert spec.state_bytes // spec.kv_bytes_per_token + 1 == case["equal_at_prompt"]
    rank = spec.for_rank(case["hetero_tp"]["d_tp"])
    assert rank.state_bytes == case["hetero_tp"]["state_bytes_per_decode_rank"]


def test_51_kv_of_stripped_reasoning(cases):
    case = cases["case_51"]
    kv_bytes = get_model("qwen3.5-35b-a3b").kv_bytes(case["cache"]["think_tokens"])
    assert kv_bytes / 1e6 == case["expected"]["dead_mb_hybrid_kv"]


def test_65_mamba2_states_and_the_blocks_that_follow(cases):
    expected = cases["case_65"]["expected"]
    shapes = cases["case_65"]["model"]["mamba2"]
    for name, shape in shapes.items():
        spec = _mamba2_model(shape, cases["case_65"]["model"])
        (state,) = spec.recurrent_layers
        assert state.state_bytes(spec.dtypes) == expected["state_bytes"][name]
        for kv_dtype in ("bf16", "fp8"):
            kv_bytes = spec.with_dtypes(kv=kv_dtype).kv_bytes_per_token
            block = 16 * -(-spec.state_bytes // (16 * kv_bytes))
            assert block == expected["derived_blocks"][f"{name}_{kv_dtype}_kv"]
    nano = get_model("nemotron-3-nano-30b-a3b")
    assert nano.recurrent_layers[0].state_bytes(nano.dtypes) == expected["state_bytes"]["nano"]


def _mamba2_model(shape: dict, model: dict) -> ModelSpec:
    state = {"kind": "mamba2", "num_key_heads": shape["groups"], "key_dim": shape["state"],
             "num_value_heads": shape["heads"], "value_dim": shape["head_dim"],
             "conv_kernel": 4}  # fmt: skip
    full = {"num_heads": 32, "num_kv_heads": model["kv_heads"], "head_dim": model["head_dim"]}
    layers = {"M": {"recurrent": state}, "F": {"attention": full}}
    return get_model({"hidden": 1024, "vocab": 8, "layers": layers, "pattern": "MF"})
