"""Files of measured times with anything in any place: they are read, or refused with a reason."""

from copy import deepcopy
from math import inf

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hybridsim.cost.base import PrefillChunk
from hybridsim.cost.file_shapes import check_steps
from hybridsim.cost.measured import MeasuredCost, parse_profile
from hybridsim.errors import UserError
from tests.cost.test_measured import profile_data

DATA = profile_data() | {
    "fit": {"overhead_s": 1e-5, "scale": 1.0, "error": 0.03},
    "fit_steps": [
        {"chunks": [[64, 0]], "num_decodes": 2, "decode_context_tokens": 9, "median_s": 1e-3}
    ],
}


def places(value, path=()):
    """The path of every value inside nested mappings and lists; of long lists the first two."""
    yield path
    inside = value.items() if isinstance(value, dict) else []
    if isinstance(value, list):
        inside = enumerate(value[:2])
    for key, inner in inside:
        yield from places(inner, (*path, key))


PLACES = [path for path in places(DATA) if path]
anything = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=4),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=4), inner, max_size=3)
    ),
    max_leaves=6,
)


def replaced(path, value):
    data = deepcopy(DATA)
    holder = data
    for key in path[:-1]:
        holder = holder[key]
    holder[path[-1]] = value
    return data


def read_or_place(read, data):
    """What `read` gives, or the place that it refuses."""
    try:
        return read(data, "file.json")
    except UserError as error:
        return error.place


@given(st.sampled_from(PLACES), anything)
def test_a_profile_with_anything_anywhere_is_read_or_refused(path, value):
    found = read_or_place(parse_profile, replaced(path, value))
    if isinstance(found, str):
        assert found.startswith("file.json")
    else:
        cost = MeasuredCost(found)
        assert 0 < cost.step_s([PrefillChunk(1, 0), PrefillChunk(9000, 90000)], 3, 300, 1) < inf
        assert 0 <= cost.error_s([PrefillChunk(300, 0)], 0, 0) < inf


@pytest.mark.parametrize(
    ("path", "value", "place"),
    [
        (("operators", "dense", "points", 0, "at"), [1, 2], "operators.dense.points.0.at"),
        (("operators", "dense", "points", 0, "median_s"), "x", "operators.dense.points.0.median_s"),
        (("operators", "dense", "axes"), None, "operators.dense.axes"),
        (("operators", "dense", "axes"), ["a", "b"], "operators.dense.axes"),
        (("operators", "full_prefill", "axes"), ["a"], "operators.full_prefill.axes"),
        (("operators", "head", "points", 1, "at"), [1], "operators.head.points.1.at"),
        (("operators", "copy", "points", 0, "at"), [0], "operators.copy.points.0.at"),
        (("operators", "copy", "points", 0, "at"), [10**400], "operators.copy.points.0.at.0"),
        (("operators", "copy", "points", 0, "high_s"), 9e-6, "operators.copy.points.0"),
        (("operators", "copy", "points", 0, "low_s"), 2e-5, "operators.copy.points.0"),
        (("state_bytes",), 0, "state_bytes"),
        (("fit_steps", 0), {"chunks": [[0, 9]], "num_decodes": 0, "decode_context_tokens": 0,
                            "median_s": 1e-3}, "fit_steps.0"),
        (("operators",), [], "operators"),
        (("fit", "scale"), float("nan"), "fit.scale"),
        (("fit", "slope"), 1.0, "fit.slope"),
        (("fit_steps", 0, "median_s"), 0, "fit_steps.0.median_s"),
        (("state_bytes",), "much", "state_bytes"),
        (("tp",), True, "tp"),
    ],
)  # fmt: skip
def test_the_wrong_value_is_named(path, value, place):
    with pytest.raises(UserError) as caught:
        parse_profile(replaced(path, value), "p.json")
    assert caught.value.place == f"p.json.{place}"


@given(anything)
def test_steps_of_any_shape_are_taken_or_refused(value):
    place = read_or_place(check_steps, {"steps": value})
    if place is None:
        assert all(step["median_s"] > 0 for step in value)
    else:
        assert place.startswith("file.json.steps")
