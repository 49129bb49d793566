"""Texts of the command line: key=value pairs, sizes, and the folder that results go to."""

import hypothesis.strategies as st
import pytest
import yaml
from hypothesis import given

from hybridsim.cli.options import key_values, result_folder, sizes
from hybridsim.errors import UserError

KEYS = st.from_regex(r"[a-z]{1,5}", fullmatch=True)
INTEGERS = st.integers(-(2**63) + 1, 2**63 - 1)
VALUES = st.none() | st.booleans() | INTEGERS | st.lists(INTEGERS, max_size=3)


@given(st.dictionaries(KEYS, st.dictionaries(KEYS, VALUES, min_size=1, max_size=3), max_size=4))
def test_dotted_keys_lead_into_mappings(wanted):
    pairs = [
        f"{outer}.{inner}={yaml.safe_dump(value, default_flow_style=True).splitlines()[0]}"
        for outer, values in wanted.items()
        for inner, value in values.items()
    ]
    assert key_values(pairs) == wanted


def test_values_are_typed_as_in_an_experiment():
    # YAML 1.2: `no` is a text and 1e9 a number, unlike in YAML 1.1.
    assert key_values(["a=no", "b=1e9", "c=true", "d=1:30", "e=x=y", "f="]) == {
        "a": "no", "b": 1e9, "c": True, "d": "1:30", "e": "x=y", "f": None,
    }  # fmt: skip


@pytest.mark.parametrize(
    ("pairs", "message"),
    [
        (["jitter"], "--option: 'jitter'; allowed: key=value"),
        (["=1"], "--option: '=1'; allowed: key=value"),
        (["a..b=1"], "--option: 'a..b=1'; allowed: key=value"),
        (["a=1", "a.b=2"], "a has a value already"),
        (["a={"], "--option a.*not valid YAML"),
    ],
)
def test_a_text_that_is_no_pair_is_named(pairs, message):
    with pytest.raises(UserError, match=message):
        key_values(pairs)


def test_sizes_are_bytes():
    assert sizes("1KiB,2MiB", "--memory") == [1024, 2 * 2**20]
    with pytest.raises(UserError, match="--memory: '' is not a size"):
        sizes("1KiB,", "--memory")


def test_a_folder_has_a_plain_name_and_is_not_made(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert result_folder(None, "a b-plan-x/y", "plan.json", force=False).parts == (
        "results", "a-b-plan-x-y",
    )  # fmt: skip
    assert not list(tmp_path.iterdir())
