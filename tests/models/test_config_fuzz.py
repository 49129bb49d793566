"""Any JSON value in any place of a model's config: a model, or one error that names the place."""

from collections.abc import Callable
from typing import Any

from hypothesis import HealthCheck, given, settings

from hybridsim.errors import UserError
from hybridsim.models import ModelSpec, get_model, ledger
from hybridsim.models.hf import from_hf_mapping
from models import configs
from spoil import JSON, spoiled

CONFIGS = [
    value
    for value in vars(configs).values()
    if isinstance(value, dict) and ("model_type" in value or "text_config" in value)
]
_KDA = {"kind": "kda", "num_key_heads": 4, "num_value_heads": 8, "key_dim": 64, "value_dim": 64}
_LATENT = {"kv_rank": 512, "rope_dim": 64, "nope_dim": 128, "value_dim": 128}
_MOE = {"num_experts": 8, "num_active": 2, "intermediate": 512}
INLINE: list[dict[str, Any]] = [
    {"base": "qwen3.5-0.8b", "dtypes": {"kv": "float8"}, "tp": 2, "twin": "all_full"},
    {
        "hidden": 1024,
        "vocab": 1000,
        "layers": {
            "L": {"recurrent": _KDA, "mlp": {"intermediate": 512}},
            "F": {"attention": {"num_heads": 8, "head_dim": 192, "latent": _LATENT}, "moe": _MOE},
        },
        "pattern": "LLLF",
        "repeat": 3,
    },
]


def check(build: Callable[[], ModelSpec], place: str) -> None:
    """A model that a command could show, or a UserError at the place and of readable length."""
    try:
        spec = build()
    except UserError as error:
        said = str(error)
    else:
        whole(spec)
        return
    assert said.startswith(place)
    assert len(said) < 2000


def whole(spec: ModelSpec) -> None:
    """What the commands would ask the model for."""
    assert ledger(spec).kv_bytes_per_token == spec.kv_bytes_per_token >= 0
    assert spec.weight_bytes > 0
    assert spec.prefill_flops(100, 50).total > spec.decode_flops(100).total > 0


@settings(max_examples=300, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(config=spoiled(CONFIGS))
def test_a_spoiled_config_is_a_model_or_one_clear_error(config):
    check(lambda: from_hf_mapping(config, "x/config.json", "x"), "x/config.json")


@settings(max_examples=300, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(config=spoiled(INLINE))
def test_a_spoiled_inline_spec_is_a_model_or_one_clear_error(config):
    check(lambda: get_model(config), "model")


@settings(max_examples=100, deadline=None)
@given(value=JSON)
def test_any_value_as_model_is_a_model_or_one_clear_error(value):
    check(lambda: get_model(value, "model"), "")


def test_the_good_ones_are_models():
    """Else the cases above could fail for another reason than their own."""
    assert len(CONFIGS) >= 8
    for config in CONFIGS:
        assert from_hf_mapping(config, "x", "x").num_params > 0
    for config in INLINE:
        assert get_model(config).num_params > 0
