"""`hybridsim report` on result folders that were cut, edited or mixed up by hand."""

import json
import shutil
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from rich.console import Console

from experiments.helpers import read_summary, tiny, write_experiment
from hybridsim.errors import UserError
from hybridsim.report.draw import draw_report
from hybridsim.report.page import write_page
from hybridsim.report.tables import read_results
from hybridsim.sweep import command


@pytest.fixture(scope="module")
def timed(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("timed")
    sweep = {"cache.state_slots": [1, 4]}
    data = tiny(folder, mode="timed", gpu="h200", sweep=sweep, plots=None)
    path = write_experiment(folder, data)
    assert command.run(path, [], out_dir=folder / "out", console=Console(quiet=True)) == 0
    return folder / "out"


@pytest.fixture
def copy(timed, tmp_path) -> Path:
    return shutil.copytree(timed, tmp_path / "copy")


def first_run(folder: Path) -> Path:
    return folder / "runs" / read_summary(folder)[0]["run"]


def _as_folder(path: Path) -> None:
    path.unlink()
    path.mkdir()


def _cut(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-3])


def _without_a_column(path: Path) -> None:
    table = pq.ParquetFile(path).read()
    pq.write_table(table.drop_columns([table.column_names[-1]]), path)


DAMAGES = {
    "gone": Path.unlink,
    "empty": lambda path: path.write_bytes(b""),
    "cut": _cut,
    "a folder": _as_folder,
    "a list": lambda path: path.write_bytes(b"[]"),
    "null": lambda path: path.write_bytes(b"null\n"),
}
FILES = ("summary.csv", "experiment.yaml", "meta.json", "requests.parquet", "steps.parquet")


@pytest.mark.parametrize("damage", DAMAGES)
@pytest.mark.parametrize("name", FILES)
def test_a_damaged_file_is_named_and_nothing_is_drawn(copy, name, damage):
    if (name, damage) == ("experiment.yaml", "cut"):
        pytest.skip("the last key without its last letters is still YAML")
    path = copy / name if name in FILES[:2] else first_run(copy) / name
    drawn = {each: each.read_bytes() for each in (copy / "plots").iterdir()}
    drawn[copy / "report.html"] = (copy / "report.html").read_bytes()
    DAMAGES[damage](path)
    with pytest.raises(UserError) as caught:
        draw_report(copy)
    assert str(path) in caught.value.place
    assert {each: each.read_bytes() for each in drawn} == drawn


@pytest.mark.parametrize("name", ["requests.parquet", "steps.parquet"])
def test_a_table_without_a_column_is_named(copy, name):
    path = first_run(copy) / name
    _without_a_column(path)
    with pytest.raises(UserError, match=rf"{name}: has no column '\w+'; allowed: a whole folder"):
        draw_report(copy)
    pq.write_table(pa.table({"x": [1]}), path)
    with pytest.raises(UserError, match="has no column"):
        draw_report(copy)


@pytest.mark.parametrize(
    ("edit", "says"),
    [
        (lambda text: text + ",\n", "without a run"),
        (lambda text: text.rsplit(",", 1)[0], "is cut off in its last row"),
        (lambda text: text.splitlines(keepends=True)[0], "has no finished run"),
        (lambda text: text.replace("run", "ran", 1), "has no column 'run'"),
    ],
)
def test_an_edited_summary_is_refused(copy, edit, says):
    path = copy / "summary.csv"
    path.write_text(edit(path.read_text()))
    with pytest.raises(UserError, match=says) as caught:
        draw_report(copy)
    assert caught.value.place == str(path)


JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**53), 2**53) | st.floats(0, 9) | st.text(),
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(st.text(), inner, max_size=2),
    max_leaves=3,
)


@given(data=st.data())
@settings(max_examples=40, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_any_edit_of_a_meta_file_is_drawn_or_named(copy, data):
    """Some key, or one of its trace, is something else or gone."""
    path = first_run(copy) / "meta.json"
    original = path.read_bytes()
    meta: dict[str, Any] = json.loads(original)
    place = data.draw(st.sampled_from([meta, meta["trace"]]))
    key = data.draw(st.sampled_from(sorted(place)))
    if data.draw(st.booleans()):
        place[key] = data.draw(JSON)
    else:
        del place[key]
    path.write_text(json.dumps(meta))
    try:
        write_page(copy / "page.html", read_results(copy), [])
        place_of_error = f"{path} {key}"
    except UserError as error:
        place_of_error = error.place
    finally:
        path.write_bytes(original)
    assert str(path) in place_of_error
    assert key in place_of_error
