"""From a GPU value to a cost model, and what is said of wrong ones."""

import json
from math import inf

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hybridsim.cost import GPUS, InfiniteCost, PrefillChunk, RooflineCost, get_cost_model
from hybridsim.cost.efficiency import CLASSES
from hybridsim.cost.load import _Efficiency, _GpuMapping
from hybridsim.cost.measured import MeasuredCost
from hybridsim.cost.profiles import shipped_profiles
from hybridsim.errors import UserError
from hybridsim.models import get_model

MODEL = get_model("qwen3.5-0.8b")
CHUNK = [PrefillChunk(1000, 500)]


@pytest.mark.parametrize("name", GPUS)
def test_every_gpu_prices_a_step(name):
    gpu = GPUS[name]
    cost = get_cost_model(name, MODEL)
    assert isinstance(cost, RooflineCost)
    assert cost.gpu is gpu
    assert cost.step_s(CHUNK, 3, 3000) > 0
    assert len(gpu.source) > 5
    # From the H20, cut to 37 operations a byte, to the L40S: a slip of a factor would show.
    assert 30 < gpu.flops_per_s / gpu.hbm_bytes_per_s < 600


@given(st.integers(0, 10**9), st.integers(0, 1000), st.integers(0, 10**9))
def test_infinite_speed_takes_no_time(num_steps, num_decodes, context):
    cost = get_cost_model("infinite", MODEL, tp=8)
    assert isinstance(cost, InfiniteCost)
    assert cost.step_s(CHUNK, num_decodes, context, 10**12) == 0
    assert cost.decode_steps_s(num_steps, num_decodes, context) == 0


def test_ranks_are_made_of_the_whole_model():
    cost = get_cost_model("h200", MODEL, tp=2)
    assert isinstance(cost, RooflineCost)
    assert cost.model == MODEL.for_rank(2)


def test_a_known_gpu_changed_and_an_unknown_one_described():
    known = get_cost_model({"name": "h100", "efficiency": {"memory": 0.9}}, MODEL)
    assert isinstance(known, RooflineCost)
    assert known.gpu == GPUS["h100"]
    assert {known.efficiency.ceiling(part).memory for part in CLASSES} == {0.9}
    # YAML reads 1e15 as a text
    custom = get_cost_model(
        {"flops_per_s": "1e15", "hbm_bytes_per_s": 2e12, "memory": "96GiB"}, MODEL
    )
    assert isinstance(custom, RooflineCost)
    assert (custom.gpu.name, custom.gpu.flops_per_s) == ("custom", 1e15)
    assert custom.gpu.memory_bytes == 96 * 2**30
    for infinite in ({"name": "h200", "cost": "infinite"}, {"name": "infinite"},
                     {"name": "infinite", "cost": "infinite"}):  # fmt: skip
        assert isinstance(get_cost_model(infinite, MODEL), InfiniteCost)


@pytest.mark.parametrize(
    ("value", "place", "says"),
    [
        ("h2000", "gpu", "did you mean 'h200'"),
        (None, "gpu", "unknown name None"),
        (200, "gpu", "unknown name 200"),
        ({"name": "h2000"}, "gpu", "did you mean 'h200'"),
        ({"name": "h200", "speed": 2}, "gpu.speed", "unknown name 'speed'; allowed: name"),
        ({"name": "h200", "cost": "measure"}, "gpu.cost", "allowed: roofline"),
        ({"flops_per_s": 1e15}, "gpu.hbm_bytes_per_s", "missing"),
        ({}, "gpu.flops_per_s", "missing"),
        ({"name": "h200", "flops_per_s": -1}, "gpu.flops_per_s", "or equal to 1"),
        ({"name": "h200", "flops_per_s": "fast"}, "gpu.flops_per_s", "'fast'"),
        ({"name": "h200", "memory": "much"}, "gpu.memory", "'much' is not a size"),
        ({"name": "h200", "efficiency": {"memory": 1.2}}, "gpu.efficiency.memory", "1.2"),
        ({"name": "h200", "efficiency": {"matmul": 0}}, "gpu.efficiency.matmul", "to 0.000001"),
        ({"name": "h200", "efficiency": {"x": 1}}, "gpu.efficiency.x", "allowed: matmul"),
        ({"name": "h200", "efficiency": {"matmul": True}}, "gpu.efficiency.matmul", "True"),
        ({"name": "h200", "efficiency": {"link": "nan"}}, "gpu.efficiency.link", "or equal to"),
        ({"name": "h200", "efficiency": {"step_overhead_s": "inf"}},
         "gpu.efficiency.step_overhead_s", "less than or equal to 3600"),
        ({"name": "h200", "hbm_bytes_per_s": 1e-320}, "gpu.hbm_bytes_per_s", "or equal to 1"),
        ({"name": "h200", "cost": ""}, "gpu.cost", "unknown name ''; allowed: roofline"),
        ({"name": "infinite", "cost": "measured"}, "gpu.cost", "no meaning for an infinite GPU"),
        ({"name": "infinite", "flops_per_s": 1e15}, "gpu.flops_per_s", "no meaning"),
    ],
)  # fmt: skip
def test_gpus_that_are_refused(value, place, says):
    with pytest.raises(UserError, match=says) as caught:
        get_cost_model(value, MODEL)
    assert caught.value.place == place


def test_a_model_that_cannot_be_cut_is_refused():
    with pytest.raises(UserError, match="does not divide"):
        get_cost_model("h200", MODEL, tp=3)


def test_a_measured_profile_is_taken_when_asked_for(tmp_path):
    """The shipped profile of this GPU and model; of others there is none, and each is told so."""
    cost = get_cost_model({"name": "h200", "cost": "measured"}, get_model("qwen3.5-0.8b"))
    assert isinstance(cost, MeasuredCost)
    path = shipped_profiles()["h200", "qwen3.5-0.8b", 1]
    own = get_cost_model({"name": "mine", "profile": str(path)}, get_model("qwen3.5-0.8b"))
    chunk = PrefillChunk(512, 1024)
    assert own.step_s([chunk], 8, 9000) == cost.step_s([chunk], 8, 9000)
    for gpu, model, tp, name in (
        ({"name": "h100", "cost": "measured"}, "qwen3.5-0.8b", 1, "gpu.cost"),
        ({"name": "h200", "cost": "measured"}, "qwen3.5-4b", 1, "gpu.cost"),
        ({"name": "h200", "profile": str(path)}, "qwen3.5-4b", 1, "gpu.profile"),
        ({"name": "h200", "cost": "measured"}, "qwen3.5-0.8b", 2, "gpu.cost"),
        ({"name": "h200", "profile": str(path)}, "qwen3.5-0.8b", 2, "gpu.profile"),
        ({"name": "h200", "cost": "roofline", "profile": str(path)}, "qwen3.5-0.8b", 1,
         "gpu.profile"),
        ({"name": "h200", "profile": str(tmp_path / "no.json")}, "qwen3.5-0.8b", 1,
         str(tmp_path / "no.json")),
        # Another card's memory would go with these times.
        ({"name": "a100", "profile": str(path)}, "qwen3.5-0.8b", 1, "gpu.name"),
        ({"name": "h20", "profile": str(path)}, "qwen3.5-0.8b", 1, "gpu.name"),
        # What is measured cannot be set.
        ({"name": "h200", "cost": "measured", "flops_per_s": 1e15}, "qwen3.5-0.8b", 1,
         "gpu.flops_per_s"),
        ({"profile": str(path), "efficiency": {"matmul": 0.5}}, "qwen3.5-0.8b", 1,
         "gpu.efficiency.matmul"),
        # Half the bytes of KV or state take other times.
        ({"name": "h200", "cost": "measured"},
         {"base": "qwen3.5-0.8b", "dtypes": {"kv": "float8"}}, 1, "gpu.cost"),
        ({"name": "h200", "cost": "measured"},
         {"base": "qwen3.5-0.8b", "dtypes": {"state": "bfloat16"}}, 1, "gpu.cost"),
    ):  # fmt: skip
        with pytest.raises(UserError) as caught:
            get_cost_model(gpu, get_model(model), tp)
        assert caught.value.place == name


RATES = [key for key in _GpuMapping.model_fields if key.endswith("_per_s")]
odd_numbers = (
    st.floats() | st.integers() | st.booleans() | st.none() | st.binary(max_size=3)
    | st.text(max_size=4) | st.floats().map(str)
)  # fmt: skip


def cost_or_place(gpu):
    """The cost model of a GPU, or the place that is refused."""
    try:
        return get_cost_model(gpu, MODEL, tp=2)
    except UserError as error:
        return error.place


@given(
    st.dictionaries(st.sampled_from(list(_Efficiency.model_fields)), odd_numbers, max_size=2),
    st.dictionaries(st.sampled_from(RATES), odd_numbers),
    st.integers(1, 10**5), st.integers(0, 10**6), st.integers(0, 10**4),
)  # fmt: skip
def test_whatever_is_taken_prices_every_step_in_finite_time(shares, rates, new, context, decodes):
    cost = cost_or_place({"name": "h200", "efficiency": shares} | rates)
    if isinstance(cost, str):
        assert cost.split(".")[-1] in {*shares, *rates}
        return
    assert 0 < cost.step_s([PrefillChunk(new, context)], decodes, decodes * context) < inf
    assert 0 <= cost.decode_steps_s(new, decodes, decodes * context) < inf


@pytest.mark.parametrize(
    ("key", "value", "place"),
    [
        ("state_bytes", 1e30, "state_bytes"),
        ("fit", {"scale": -1.0}, "fit.scale"),
        ("fit", {"error": -1.0}, "fit.error"),
        ("fit", {"overhead_s": -1.0}, "fit.overhead_s"),
    ],
)
def test_an_edited_profile_that_would_turn_time_back_is_refused(key, value, place, tmp_path):
    data = json.loads(shipped_profiles()["h200", "qwen3.5-0.8b", 1].read_text())
    path = tmp_path / "edited.json"
    path.write_text(json.dumps({**data, key: value}))
    with pytest.raises(UserError) as caught:
        get_cost_model({"name": "h200", "profile": str(path)}, get_model("qwen3.5-0.8b"))
    assert caught.value.place == f"edited.json.{place}"


@pytest.mark.parametrize(
    ("model", "says"),
    [
        ("qwen3-next-80b-a3b", "lacks experts, which qwen3-next-80b-a3b has"),
        ("qwen3.5-0.8b", "has experts, which qwen3.5-0.8b lacks"),
    ],
)
def test_a_profile_has_experts_as_its_model_has(model, says, tmp_path):
    data = json.loads(shipped_profiles()["h200", model, 1].read_text())
    parts = data["operators"]
    if parts.pop("experts", None) is None:
        parts["experts"] = parts["dense"]
    path = tmp_path / "edited.json"
    path.write_text(json.dumps(data))
    with pytest.raises(UserError, match=says) as caught:
        get_cost_model({"name": "h200", "profile": str(path)}, get_model(model))
    assert caught.value.place == "edited.json.operators"
