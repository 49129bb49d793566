"""YAML with a memory for places: every key knows its line. It does not know what the keys mean."""

import difflib
import re
from collections.abc import Hashable, Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

from hybridsim.errors import UserError

KeyPath = tuple[Hashable, ...]


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


def _construct_float(loader: yaml.SafeLoader, node: yaml.ScalarNode) -> float:
    text = str(node.value).lower().replace(".inf", "inf").replace(".nan", "nan")
    return float(text)


_Loader.add_constructor("tag:yaml.org,2002:float", _construct_float)


@dataclass(frozen=True, slots=True)
class Source:
    """A parsed file: its data, and for each key path the line that it stands on."""

    name: str
    data: dict[str, Any]
    lines: dict[KeyPath, int] = field(default_factory=dict)
    overridden: frozenset[str] = frozenset()

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
    try:
        text = path.read_text(encoding="utf-8")
    except FileNotFoundError:
        raise UserError(str(path), f"no such file{_nearby_file(path)}") from None
    except UnicodeDecodeError as error:
        raise UserError(
            str(path), f"byte {error.start} is not UTF-8; allowed: YAML text in UTF-8"
        ) from None
    except OSError as error:
        raise UserError(str(path), f"cannot be read ({error.strerror}); allowed: a file") from None
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
        _walk(node, (), name, lines, set())
        return loader.construct_document(node)
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


def _walk(
    node: yaml.Node, path: KeyPath, name: str, lines: dict[KeyPath, int], above: set[int]
) -> None:
    """Note the line of every key; refuse repeated keys and nodes that contain themselves."""
    line = node.start_mark.line + 1
    if id(node) in above:
        raise UserError(f"{name}:{line}", "an alias contains itself; allowed: a finite mapping")
    if isinstance(node, yaml.SequenceNode):
        for index, item in enumerate(node.value):
            lines[(*path, str(index))] = item.start_mark.line + 1
            _walk(item, (*path, str(index)), name, lines, above | {id(node)})
    elif isinstance(node, yaml.MappingNode):
        seen: dict[str, int] = {}
        for key_node, value_node in node.value:
            key, key_line = _key(key_node, name), key_node.start_mark.line + 1
            if key in seen and key != "<<":
                where = ".".join(map(str, (*path, key)))
                raise UserError(
                    f"{name}:{key_line}: {where}",
                    f"the key is given twice, first on line {seen[key]}; allowed: once",
                )
            seen[key] = key_line
            lines[(*path, key)] = key_line
            _walk(value_node, (*path, key), name, lines, above | {id(node)})


def _key(node: yaml.Node, name: str) -> str:
    if isinstance(node, yaml.ScalarNode) and node.tag in (
        "tag:yaml.org,2002:str",
        "tag:yaml.org,2002:merge",
    ):
        return str(node.value)
    line = node.start_mark.line + 1
    raise UserError(f"{name}:{line}", f"{node.value!r} is not a key; allowed: a text as key")


def _kind(data: object) -> str:
    return "list" if isinstance(data, list) else "text" if isinstance(data, str) else "number"


def _nearby_file(path: Path) -> str:
    if not path.parent.is_dir():
        return f" (there is no folder {str(path.parent)!r} either); allowed: an existing file"
    names = [entry.name for entry in path.parent.iterdir() if entry.is_file()]
    return f"{did_you_mean(path.name, names)}; allowed: an existing file"


def did_you_mean(value: object, allowed: Iterable[str]) -> str:
    """` (did you mean 'x'?)` or nothing."""
    near = difflib.get_close_matches(str(value), list(allowed), n=1)
    return f" (did you mean {near[0]!r}?)" if near else ""
