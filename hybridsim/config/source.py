"""YAML with a memory for places: every key knows its line. It does not know what the keys mean."""

import re
from collections.abc import Hashable, Sequence
from dataclasses import dataclass, field
from os.path import exists
from pathlib import Path
from typing import Any

import yaml

from hybridsim.errors import UserError, did_you_mean, shorten
from hybridsim.files import read_whole

KeyPath = tuple[Hashable, ...]

# Keys that decide what a figure can show: which columns there are, and what is swept.
_DECIDING_PLOTS = frozenset({"bound", "cache", "engine", "mode", "sweep"})


class _Loader(yaml.SafeLoader):
    """Scalars as YAML 1.2 reads them: `no` and `1:30` are texts, `1e9` is a number."""

    yaml_implicit_resolvers: dict[str, list[tuple[str, Any]]] = {}


def _resolve(tag: str, pattern: str, first: Sequence[str]) -> None:
    _Loader.add_implicit_resolver(f"tag:yaml.org,2002:{tag}", re.compile(pattern), list(first))


_resolve("null", r"(?:~|null|Null|NULL|)$", ["~", "n", "N", ""])
_resolve("bool", r"(?:true|True|TRUE|false|False|FALSE)$", "tTfF")
_resolve("int", r"[-+]?(?:0|[1-9][0-9_]*)$", "-+0123456789")
_resolve(
    "float",
    r"[-+]?(?:(?:[0-9]+\.[0-9]*|\.[0-9]+|[0-9]+(?=[eE]))(?:[eE][-+]?[0-9]+)?|\.inf)$|\.nan$",
    "-+.0123456789",
)
_resolve("merge", r"<<$", "<")

_TAGS = frozenset(
    f"tag:yaml.org,2002:{tag}"
    for tag in ("null", "bool", "int", "float", "str", "seq", "map", "merge")
)
# Far above any honest experiment, far below what would take minutes or fill the memory.
MAX_DEPTH = 64
_MAX_VALUES = 200_000  # counted as aliases unfold, so that a few lines cannot stand for billions
_MAX_INTEGER = 2**63 - 1  # as every count in the tables


def _construct_int(loader: yaml.SafeLoader, node: yaml.ScalarNode) -> int:
    digits = str(node.value).replace("_", "")
    # the length first: Python refuses to read thousands of digits
    if len(digits) > 20 or not -_MAX_INTEGER <= int(digits) <= _MAX_INTEGER:
        problem = f"{shorten(digits)} is too large; allowed: integers of 64 bits"
        raise yaml.constructor.ConstructorError(problem=problem, problem_mark=node.start_mark)
    return int(digits)


def _construct_float(loader: yaml.SafeLoader, node: yaml.ScalarNode) -> float:
    text = str(node.value).lower().replace(".inf", "inf").replace(".nan", "nan")
    return float(text)


_Loader.add_constructor("tag:yaml.org,2002:int", _construct_int)
_Loader.add_constructor("tag:yaml.org,2002:float", _construct_float)


@dataclass(frozen=True, slots=True)
class Source:
    """A parsed file: its data, and for each key path the line that it stands on."""

    name: str
    data: dict[str, Any]
    lines: dict[KeyPath, int] = field(default_factory=dict)
    overridden: frozenset[str] = frozenset()

    @property
    def may_drop_plots(self) -> bool:
        """Whether figures of the file may have lost their sense by overrides of other keys."""
        keys = {path.split(".")[0] for path in self.overridden}
        return bool(keys & _DECIDING_PLOTS) and "plots" not in keys

    def place(self, path: str | KeyPath) -> str:
        """`file.yaml:12: cache.memory`, with the line of the deepest part that is in the file."""
        parts = tuple(path.split(".")) if isinstance(path, str) else path
        parts = tuple(part for part in parts if part != "")
        dotted = ".".join(map(str, parts))
        for override in self.overridden:
            if f"{dotted}.".removeprefix("sweep.").startswith(f"{override}."):
                return f"--set {dotted}"
        for stop in range(len(parts), 0, -1):
            line = self.lines.get(parts[:stop])
            if line is not None:
                return f"{self.name}:{line}: {dotted}"
        return f"{self.name}: {dotted}" if dotted else self.name


def read_source(path: Path) -> Source:
    """Parse a YAML file whose top is a mapping; raises UserError that names file and line."""
    if not exists(path):
        raise UserError(str(path), f"no such file{_nearby_file(path)}")
    try:
        text = read_whole(path).decode()
    except UnicodeDecodeError as error:
        raise UserError(
            str(path), f"byte {error.start} is not UTF-8; allowed: YAML text in UTF-8"
        ) from None
    return parse_source(text, str(path))


def parse_source(text: str, name: str) -> Source:
    """Parse YAML text; `name` stands for the file in errors."""
    lines: dict[KeyPath, int] = {}
    data = _load(text, name, lines)
    if not isinstance(data, dict):
        found = "an empty file" if data is None else f"a {_kind(data)}"
        raise UserError(f"{name}:1", f"{found} is no experiment; allowed: a mapping of keys")
    return Source(name, data, lines)


def parse_value(text: str, place: str) -> Any:
    """One value as YAML types it, for `--set path=value`."""
    return _load(text, place, {})


def _load(text: str, name: str, lines: dict[KeyPath, int]) -> Any:
    loader: _Loader | None = None
    try:
        loader = _Loader(text)
        node = loader.get_single_node()
        if node is None:
            return None
        _Walk(name, lines).visit(node, ())
        return loader.construct_document(node)
    except RecursionError:
        raise _too_deep(name) from None
    except (ValueError, KeyError) as error:  # an explicit tag on a text of another type
        raise UserError(name, f"not valid YAML: {shorten(str(error))}") from None
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        line = f":{mark.line + 1}" if mark else ""
        raise UserError(f"{name}{line}", f"not valid YAML: {error.problem}") from None
    except yaml.YAMLError as error:
        first_line = str(error).splitlines()[0]
        raise UserError(name, f"not valid YAML: {first_line}") from None
    finally:
        if loader is not None:
            loader.dispose()


class _Walk:
    """Notes the line of every key; refuses repeated keys and what cannot be unfolded."""

    def __init__(self, name: str, lines: dict[KeyPath, int]) -> None:
        self._name, self._lines = name, lines
        self._above: list[int] = []
        self._num_values = 0

    def visit(self, node: yaml.Node, path: KeyPath) -> None:
        """This node and all below it; an alias is walked wherever it stands."""
        place = f"{self._name}:{node.start_mark.line + 1}"
        self._num_values += 1
        if id(node) in self._above:
            raise UserError(place, "an alias contains itself; allowed: a finite mapping")
        if len(path) > MAX_DEPTH:
            raise _too_deep(place)
        if node.tag not in _TAGS:
            raise UserError(place, f"tag {node.tag!r} is not allowed; allowed: YAML's basic types")
        if self._num_values > _MAX_VALUES:
            allowed = f"at most {_MAX_VALUES:,} values, aliases unfolded"
            raise UserError(place, f"the file unfolds to too many values; allowed: {allowed}")
        self._above.append(id(node))
        if isinstance(node, yaml.SequenceNode):
            self._visit_items(node, path)
        elif isinstance(node, yaml.MappingNode):
            self._visit_keys(node, path)
        else:
            _check_text(node.value, place)
        self._above.pop()

    def _visit_items(self, node: yaml.SequenceNode, path: KeyPath) -> None:
        for index, item in enumerate(node.value):
            self._lines[(*path, str(index))] = item.start_mark.line + 1
            self.visit(item, (*path, str(index)))

    def _visit_keys(self, node: yaml.MappingNode, path: KeyPath) -> None:
        seen: dict[str, int] = {}
        for key_node, value_node in node.value:
            key, line = _key(key_node, self._name), key_node.start_mark.line + 1
            if key in seen and key != "<<":
                where = ".".join(map(str, (*path, key)))
                raise UserError(
                    f"{self._name}:{line}: {where}",
                    f"the key is given twice, first on line {seen[key]}; allowed: once",
                )
            seen[key] = line
            self._lines[(*path, key)] = line
            self.visit(value_node, (*path, key))


def _check_text(text: str, place: str) -> None:
    """No text that files cannot be named or written with."""
    if "\0" in text or any("\ud800" <= char <= "\udfff" for char in text):
        allowed = "no zero bytes and no halves of surrogate pairs"
        raise UserError(place, f"{shorten(text)!a} cannot be written to a file; allowed: {allowed}")


def _too_deep(place: str) -> UserError:
    return UserError(place, f"is nested too deeply; allowed: at most {MAX_DEPTH} levels")


def _key(node: yaml.Node, name: str) -> str:
    if isinstance(node, yaml.ScalarNode) and node.tag in (
        "tag:yaml.org,2002:str",
        "tag:yaml.org,2002:merge",
    ):
        return str(node.value)
    line = node.start_mark.line + 1
    found = repr(node.value)
    if isinstance(node, yaml.CollectionNode):
        found = "a list" if isinstance(node, yaml.SequenceNode) else "a mapping"
    raise UserError(f"{name}:{line}", f"{found} is not a key; allowed: a text as key")


def _kind(data: object) -> str:
    return "list" if isinstance(data, list) else "text" if isinstance(data, str) else "number"


def _nearby_file(path: Path) -> str:
    if not path.parent.is_dir():
        return f" (there is no folder {str(path.parent)!r} either); allowed: an existing file"
    names = [entry.name for entry in path.parent.iterdir() if entry.is_file()]
    return f"{did_you_mean(path.name, names)}; allowed: an existing file"
