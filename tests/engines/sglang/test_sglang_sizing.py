"""The memory split against the engine's own function, and the table a user sees."""

import json
from pathlib import Path
from typing import Any

import pytest

from hybridsim.engines.sglang.options import SGLangOptions, options_from
from hybridsim.engines.sglang.sizing import SizingInputs, describe, size_pools
from hybridsim.errors import UserError

ROWS = json.loads(Path(__file__).with_name("sizing.json").read_text())
OPTIONS = ("page_size", "strategy", "overlap", "radix", "skip_decode_lock")


def _inputs(row: dict[str, Any]) -> tuple[SGLangOptions, SizingInputs]:
    given = row["inputs"]
    options = options_from({"track_interval": 256, **{key: given[key] for key in OPTIONS}})
    rest = {key: value for key, value in given.items() if key not in OPTIONS}
    return options, SizingInputs(**rest)


def test_the_recording_has_splits_and_refusals() -> None:
    refused = sum("error" in row for row in ROWS)
    assert 5 <= refused <= len(ROWS) / 2


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row["inputs"]["strategy"])
def test_the_split_equals_the_engines(row: dict[str, Any]) -> None:
    options, inputs = _inputs(row)
    if "error" in row:
        with pytest.raises(UserError, match="allowed"):
            size_pools(options, inputs)
        return
    sizing = size_pools(options, inputs)
    names = ("state_slots", "kv_tokens", "slots_per_request", "max_running")
    assert {name: getattr(sizing, name) for name in names} == {name: row[name] for name in names}


def test_the_table_names_what_a_user_asks() -> None:
    # 2 GiB at ratio 0.9 is 1017 MB for states: 52 of 19.5 MB, one of them for padding.
    inputs = SizingInputs(2 * 2**30, 12288, 19537920)
    table = dict(describe(SGLangOptions(), inputs))
    assert table["shortest reusable prefix"].startswith("64 tokens")
    assert table["state slots"].startswith("51 of 18.63 MiB")
    assert table["running requests"] == "10, limited by state slots"
    assert table["slots per request"] == "5"


@pytest.mark.parametrize(
    ("wrong", "key"),
    [
        ({"memory_bytes": 0}, "memory_bytes"),
        ({"ratio": 0.0}, "ratio"),
        ({"num_draft_tokens": 3}, "max_running"),
        ({"memory_bytes": 2**24}, "memory_bytes"),
        ({"max_states": 3}, "max_states"),
        ({"max_states": 100_000}, "max_states"),
    ],
)
def test_impossible_inputs_name_their_key(wrong: dict[str, Any], key: str) -> None:
    given = {"memory_bytes": 2**31, "kv_bytes_per_token": 12288, "state_bytes": 19537920}
    with pytest.raises(UserError, match=f"sizing.{key}"):
        size_pools(SGLangOptions(), SizingInputs(**{**given, **wrong}))
