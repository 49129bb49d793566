"""Options that several commands share, and how their texts are read."""

from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from hybridsim.errors import UserError
from hybridsim.units import parse_bytes

if TYPE_CHECKING:
    from hybridsim.analysis.inputs import Wish

SourcePath = Annotated[Path, typer.Argument(help="Experiment (.yaml) or trace file.")]
FormatName = Annotated[
    str | None, typer.Option("--format", help="Trace format; default: guessed from the file.")
]
ModelName = Annotated[str | None, typer.Option(help="Catalogue name or path of a config.json.")]
PageSize = Annotated[int | None, typer.Option(help="Tokens in a KV page.", min=1)]
Warmup = Annotated[
    float | None, typer.Option(help="Fraction of requests left out of the rates.", min=0, max=1)
]
First = Annotated[int | None, typer.Option(help="Read only so many requests.", min=1)]
ReaderOptions = Annotated[
    list[str] | None,
    typer.Option("--option", "-o", help="Reader option as key=value; the value is YAML."),
]
Overrides = Annotated[
    list[str] | None,
    typer.Option(
        "--set", metavar="PATH=VALUE", help="Override a key, as in an experiment; repeatable."
    ),
]
OutDir = Annotated[Path | None, typer.Option("--out", help="Folder for the files.")]
Force = Annotated[bool, typer.Option("--force", help="Write over results that are there already.")]


def make_wish(
    *,
    format_name: str | None,
    model: str | None,
    layout: str | None,
    page_size: int | None,
    warmup: float | None,
    first: int | None,
    option: list[str] | None,
    overrides: list[str] | None,
    checkpoint: list[str] | None = None,
    eviction: list[str] | None = None,
    thinning: list[str] | None = None,
) -> "Wish":
    """The shared options as an analysis takes them. UserError names an option that is no option."""
    from hybridsim.analysis.inputs import Wish

    return Wish(
        format=format_name,
        model=model,
        checkpoint=tuple(checkpoint or ()),
        eviction=tuple(eviction or ()),
        thinning=tuple(thinning or ()),
        layout=layout,
        page_size=page_size,
        warmup=warmup,
        first=first,
        options=key_values(option or []),
        overrides=tuple(overrides or ()),
    )


def key_values(pairs: Iterable[str], place: str = "--option") -> dict[str, Any]:
    """`key=value` texts; dots in a key lead into mappings. Values are typed as in experiments.

    UserError at `place` names a text that is none.
    """
    from hybridsim.config.source import parse_value  # late: --help must not wait for YAML

    found: dict[str, Any] = {}
    for pair in pairs:
        key, equals, text = pair.partition("=")
        *parents, last = key.split(".")
        if not equals or not all((*parents, last)):
            raise UserError(place, f"{pair!r}; allowed: key=value, such as jitter=true")
        inner = found
        for parent in parents:
            inner = inner.setdefault(parent, {})
            if not isinstance(inner, dict):
                raise UserError(place, f"{pair!r}; {parent} has a value already; allowed: one")
        inner[last] = parse_value(text, f"{place} {key}")
    return found


def sizes(text: str, place: str) -> list[int]:
    """Bytes from `4GiB,8GiB`; UserError at `place`."""
    return [parse_bytes(size, place) for size in text.split(",")]


def result_folder(out: Path | None, default: str, marker: str, *, force: bool) -> Path:
    """Where a command writes, `results/DEFAULT` if not told. Nothing is made yet.

    UserError where a file lies in the way, or results (the file `marker`) that are not to be lost.
    """
    name = "".join(letter if letter.isalnum() or letter in "-._+" else "-" for letter in default)
    folder = out or Path("results") / name
    for part in (folder, *folder.parents):
        if part.exists() and not part.is_dir():
            raise UserError("--out", f"{str(part)!r} is not a folder; allowed: a folder")
    if (folder / marker).exists() and not force:
        raise UserError(
            "--out", f"{str(folder)!r} has a {marker} already; allowed: another folder, or --force"
        )
    return folder
