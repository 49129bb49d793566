"""Any JSON value in any place of a config: a model, or one error that names the file."""

import copy
import json
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from hybridsim.errors import UserError
from hybridsim.models import from_hf_config, get_model, ledger
from hybridsim.models.hf import from_hf_mapping
from models import configs

CONFIGS = {
    name: value
    for name, value in vars(configs).items()
    if isinstance(value, dict) and ("model_type" in value or "text_config" in value)
}
SCALARS = (
    st.none()
    | st.booleans()
    | st.integers()
    | st.integers(10**17, 10**20)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(max_size=8)
    | st.sampled_from(["auto", "full_attention", "M*-E", "fp8", "float32"])
)
JSON = st.recursive(
    SCALARS,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=6,
)


def paths(value: Any, above: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """Every place in the config, objects and list items included."""
    if above:
        yield above
    if isinstance(value, dict | list):
        items = value.items() if isinstance(value, dict) else list(enumerate(value))[:3]
        for key, inner in items:
            yield from paths(inner, (*above, key))


@st.composite
def spoiled(draw: st.DrawFn) -> dict[str, Any]:
    """A published config with one to three values replaced or taken away."""
    config = copy.deepcopy(draw(st.sampled_from(list(CONFIGS.values()))))
    for _ in range(draw(st.integers(1, 3))):
        *parents, last = draw(st.sampled_from(list(paths(config))))
        here = config
        for key in parents:
            here = here[key]
        if draw(st.integers(0, 9)) == 0 and isinstance(here, dict):
            del here[last]
        else:
            here[last] = draw(JSON)
    return config


def whole(spec: Any) -> None:
    """What a command would do with the model."""
    figures = ledger(spec)
    assert figures.kv_bytes_per_token >= 0
    assert spec.num_params > 0
    assert spec.weight_bytes > 0
    assert spec.decode_flops(100).total > 0


@settings(max_examples=400, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(config=spoiled())
def test_a_spoiled_config_is_a_model_or_one_clear_error(config):
    try:
        spec = from_hf_mapping(config, "x/config.json", "x")
    except UserError as error:
        assert error.place.startswith("x/config.json")
        assert len(str(error)) < 2000
    else:
        whole(spec)


@settings(max_examples=100, deadline=None)
@given(value=JSON)
def test_any_mapping_as_model_is_a_model_or_one_clear_error(value):
    try:
        whole(get_model(value))
    except UserError as error:
        assert len(str(error)) < 2000
