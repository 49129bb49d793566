"""Files that are there as a whole or not at all, whatever lies at their path."""

import os
import stat
from pathlib import Path

import pytest
from typer.testing import CliRunner

from hybridsim.cli.app import app
from hybridsim.errors import UserError
from hybridsim.files import WriteError, read_whole, write_whole, written_whole


def _begin_and_fail(path: Path) -> None:
    with written_whole(path) as temporary:
        temporary.write_bytes(b"half")
        raise ArithmeticError


def test_a_file_has_its_old_content_or_the_new_one(tmp_path):
    path = tmp_path / "file"
    write_whole(path, b"old")
    with pytest.raises(ArithmeticError):
        _begin_and_fail(path)
    assert path.read_bytes() == b"old"
    write_whole(path, b"new")
    assert path.read_bytes() == b"new"
    assert list(tmp_path.iterdir()) == [path]


def _pipe(path: Path) -> None:
    os.mkfifo(path)


def _device(path: Path) -> None:
    try:
        os.mknod(path, stat.S_IFCHR | 0o666, os.makedev(1, 3))  # what /dev/null is
    except PermissionError:
        pytest.skip("only root makes devices")


@pytest.mark.parametrize("make", [_pipe, _device, Path.mkdir])
@pytest.mark.parametrize("is_linked", [False, True])
def test_what_is_no_plain_file_is_not_replaced(tmp_path, tmp_path_factory, make, is_linked):
    there = tmp_path / "there.png"
    make(there)
    path = tmp_path / "link.png" if is_linked else there
    if is_linked:
        path.symlink_to(there)
    before = {each: each.lstat().st_ino for each in tmp_path.iterdir()}
    with pytest.raises(WriteError, match="allowed: the path of a file"):
        write_whole(path, b"new")
    trace = tmp_path_factory.mktemp("traces") / "trace.jsonl"
    trace.write_text('{"id": "a", "prompt": [["s", 5]], "output": 1}\n')
    for command in (
        ["trace", "stats", trace, "--json", path],
        ["trace", "convert", trace, path],
        ["model", "ledger", "qwen3.5-0.8b", "--figure", path],
    ):
        result = CliRunner().invoke(app, [str(word) for word in command])
        assert isinstance(result.exception, UserError)
    assert {each: each.lstat().st_ino for each in tmp_path.iterdir()} == before


def test_a_name_that_no_file_can_have_is_told(tmp_path):
    with pytest.raises(WriteError, match="cannot be written"):
        write_whole(tmp_path / ("n" * 300), b"new")
    assert list(tmp_path.iterdir()) == []


def test_a_link_is_followed(tmp_path):
    path, link = tmp_path / "file", tmp_path / "link"
    link.symlink_to(path)
    for content in (b"first", b"second"):  # the first makes the file
        write_whole(link, content)
        assert path.read_bytes() == content
        assert link.is_symlink()
    assert sorted(tmp_path.iterdir()) == [path, link]


def test_a_pipe_is_read_to_its_end_and_a_device_is_not_read(tmp_path):
    read, write = os.pipe()
    os.write(write, b"name: x\n")
    os.close(write)
    assert read_whole(Path(f"/dev/fd/{read}")) == b"name: x\n"
    os.close(read)
    with pytest.raises(UserError, match="/dev/zero: is a device; allowed: a file"):
        read_whole(Path("/dev/zero"))
    with pytest.raises(UserError, match="--steps: '.*none' cannot be read: No such file"):
        read_whole(tmp_path / "none", "--steps")
