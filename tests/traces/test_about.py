"""The page and the command on formats say what the readers really take."""

from pathlib import Path
from typing import Any

import pytest
import yaml
from typer.testing import CliRunner

from hybridsim.cli.app import app
from hybridsim.errors import UserError
from hybridsim.traces import FORMATS
from hybridsim.traces.about import PART, option_rows, own_options
from hybridsim.traces.content import GENERATORS as CONTENT
from hybridsim.traces.generators import GENERATORS
from hybridsim.traces.options import TraceOptions

PAGE = Path(__file__).parents[2] / "docs" / "traces.md"
GENERATE = {"generator": "chat"}


def nested(rows: list[Any]) -> dict[str, Any]:
    """The defaults that the rows show, as a config would give them."""
    options: dict[str, Any] = {}
    for row in rows:
        if row.default:
            *parents, last = row.key.split(".")
            here = options
            for parent in parents:
                here = here.setdefault(parent, {})
            here[last] = yaml.safe_load(row.default)
    return options


@pytest.mark.parametrize("name", list(FORMATS))
def test_the_defaults_shown_are_those_that_the_reader_takes(name):
    base = GENERATE if name == "generate" else {}
    rows = [*option_rows(TraceOptions), *own_options(name)]
    assert FORMATS[name].parse(base | nested(rows)) == FORMATS[name].parse(base)


@pytest.mark.parametrize("name", list(GENERATORS))
def test_so_are_those_of_the_generators(name):
    shown = nested(option_rows(GENERATORS[name][0]))
    parse = FORMATS["generate"].parse
    assert parse({"generator": name} | shown) == parse({"generator": name})


@pytest.mark.parametrize("name", list(FORMATS))
def test_no_option_is_left_out(name):
    rows = [*option_rows(TraceOptions), *own_options(name)]
    named = {row.key.split(".")[0] for row in rows}
    assert set(FORMATS[name].options.model_fields) == named


def test_limits_are_told_as_they_are_checked():
    [row] = [row for row in own_options("mooncake") if row.key == "block_size"]
    assert row.allowed == "an integer >= 1 and <= 1048576"
    for value, fits in ((0, False), (1, True), (1048576, True), (1048577, False)):
        if fits:
            FORMATS["mooncake"].parse({"block_size": value})
        else:
            with pytest.raises(UserError, match="block_size"):
                FORMATS["mooncake"].parse({"block_size": value})


def test_the_page_is_as_the_readers_are():
    text = PAGE.read_text()
    assert PART.renewed(text) == text
    for name in (*FORMATS, *GENERATORS, *CONTENT):
        assert f"`{name}`" in text or f"generator: {name}`" in text


@pytest.mark.parametrize("name", list(FORMATS))
def test_the_command_tells_all_of_a_format(name):
    shown = CliRunner().invoke(app, ["trace", "formats", name])
    assert shown.exit_code == 0
    for row in [*own_options(name), *option_rows(TraceOptions)]:
        assert row.key in shown.output
    listed = CliRunner().invoke(app, ["trace", "formats"]).output
    assert name in listed
    assert FORMATS[name].about in listed
