"""Any JSON value in any place of a trace's line: requests, or one error that names the line."""

import json
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from hybridsim.errors import UserError
from hybridsim.traces import open_trace, read_trace
from hybridsim.traces.convert import write_trace
from hybridsim.traces.stats import trace_stats
from spoil import spoiled
from traces.good_lines import GOOD


@pytest.fixture(scope="module")
def file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("traces") / "spoiled.jsonl"


@settings(max_examples=60, deadline=None, suppress_health_check=list(HealthCheck))
@pytest.mark.parametrize("form", list(GOOD))
@given(data=st.data())
def test_a_spoiled_line_is_requests_or_one_clear_error(form, file, data):
    line = data.draw(spoiled([GOOD[form]]))
    file.write_text(json.dumps(GOOD[form]) + "\n" + json.dumps(line) + "\n")
    try:
        stats = trace_stats(open_trace(file, form))
        count = write_trace(open_trace(file, form), file.with_suffix(".out"), "segments")
    except UserError as error:
        said = str(error)
    else:
        assert stats.num_requests == count >= 1
        return
    assert said.startswith((f"{file}:2:", f"{file}:1:", "trace.")), said
    assert len(said) < 1000


@pytest.mark.parametrize("form", list(GOOD))
def test_the_good_line_is_good(form, file):
    """Else the cases above could fail for another reason than their own."""
    file.write_text(json.dumps(GOOD[form]) + "\n")
    assert trace_stats(open_trace(file, form)).num_requests >= 1


@pytest.mark.parametrize("form", list(GOOD))
def test_a_cut_trace_says_all_that_its_beginning_says_alone(form, file):
    file.write_text(json.dumps(GOOD[form]) + "\n")
    alone = read_trace(file, form)
    second = GOOD[form] | {"chat_id": 2}
    file.write_text(json.dumps(GOOD[form]) + "\n" + json.dumps(second) + "\n")
    cut = read_trace(file, form, first=len(alone.requests))
    assert cut.assumptions == alone.assumptions
    assert len(cut.requests) == len(alone.requests)
