"""`hybridsim trace`: look at traces, convert them, make them up."""

import inspect
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any

import orjson
import typer
from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.markup import escape
from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn
from rich.table import Table

from hybridsim.cli.options import ReaderOptions, key_values
from hybridsim.errors import unknown_name
from hybridsim.files import write_whole
from hybridsim.terminal import wide_console
from hybridsim.traces import FORMATS, TraceStream, open_trace
from hybridsim.traces.arrivals import read_times
from hybridsim.traces.convert import WRITERS, write_trace
from hybridsim.traces.detect import detect_format
from hybridsim.traces.generators import GENERATORS
from hybridsim.traces.generators.knobs import Knob, knobs, nested
from hybridsim.traces.options import TraceOptions
from hybridsim.traces.reading import Progress as OnProgress
from hybridsim.traces.stats import TraceStats, trace_stats
from hybridsim.traces.tables import stats_rows

trace_app = typer.Typer(
    name="trace",
    help="Look at traces, convert them, make them up. Example: hybridsim trace stats x.jsonl",
    no_args_is_help=True,
    rich_markup_mode=None,
)
generate_app = typer.Typer(
    name="generate",
    help="Write a seeded made-up workload. Example: hybridsim trace generate chat chat.jsonl",
    no_args_is_help=True,
    rich_markup_mode=None,
)
trace_app.add_typer(generate_app)

File = Annotated[Path, typer.Argument(help="Trace file (plain, .gz, .xz), or RAGPulse folder.")]
FormatName = Annotated[
    str | None, typer.Option("--format", help=f"One of {', '.join(FORMATS)}; default: guessed.")
]
First = Annotated[int | None, typer.Option(help="Read only so many requests.")]
Seed = Annotated[int, typer.Option(help="Seed of everything that is drawn.")]


def register(app: typer.Typer) -> None:
    """Add `trace` and its commands."""
    app.add_typer(trace_app)


@trace_app.command()
def stats(
    file: File,
    format_name: FormatName = None,
    option: ReaderOptions = None,
    first: First = None,
    seed: Seed = 0,
    json_path: Annotated[Path | None, typer.Option("--json", help="Also write JSON here.")] = None,
) -> None:
    """Print lengths, pace and ideal reuse. Example: hybridsim trace stats conversation.jsonl"""
    with _opened("reading", file, format_name, option, first, seed) as stream:
        found = trace_stats(stream)
    if json_path is not None:
        write_whole(json_path, orjson.dumps(found.as_dict(), option=orjson.OPT_INDENT_2))
    _print_stats(found)


@trace_app.command()
def formats(
    name: Annotated[str | None, typer.Argument(help="Tell fields and options of this one.")] = None,
) -> None:
    """List the formats, or tell all of one. Example: hybridsim trace formats mooncake"""
    if name is None:
        _print_rows(
            [(known, form.about) for known, form in FORMATS.items()], "format", "what it is"
        )
        return
    if name not in FORMATS:
        raise unknown_name("format", name, list(FORMATS))
    from hybridsim.traces import about

    typer.echo(about.description_of(name) + "\n")
    parts = {"options": about.own_options(name)}
    if name == "generate":
        parts |= {f"generator: {key}": rows for key, rows in about.generator_options().items()}
    parts["options of every format"] = about.option_rows(TraceOptions)
    for title, rows in parts.items():
        cells = [(row.key, row.allowed, row.default, row.meaning) for row in rows]
        _print_rows(cells, "option", "allowed", "default", "meaning", title=title)


def _print_rows(rows: Sequence[Sequence[str]], *headings: str, title: str | None = None) -> None:
    if not rows:
        return
    table = Table(*headings, title=title, title_justify="left", box=SIMPLE_HEAD)
    for row in rows:
        table.add_row(*map(escape, row))
    wide_console(140).print(table)


@trace_app.command()
def convert(
    file: File,
    out: Annotated[Path, typer.Argument(help="File to write.")],
    to: Annotated[str, typer.Option(help=f"One of {', '.join(WRITERS)}.")] = "segments",
    format_name: FormatName = None,
    option: ReaderOptions = None,
    first: First = None,
    seed: Seed = 0,
) -> None:
    """Rewrite a trace. Example: hybridsim trace convert x.jsonl x.segments.jsonl --to segments"""
    with _opened("converting", file, format_name, option, first, seed) as stream:
        count = write_trace(stream, out, to)
    typer.echo(f"{count} requests written to {out} as {to}")


@contextmanager
def _opened(
    what: str,
    file: Path,
    format_name: str | None,
    option: list[str] | None,
    first: int | None,
    seed: int,
) -> Iterator[TraceStream]:
    """The file's requests, as the options tell, with a bar while they are read."""
    with _bar(what) as progress:
        yield open_trace(
            file,
            format_name or detect_format(file),
            first=first,
            options=key_values(option or []),
            seed=seed,
            progress=progress,
        )


@contextmanager
def _bar(what: str) -> Iterator[OnProgress]:
    """A progress bar over the bytes of the file, on stderr and only on a terminal."""
    columns = (TextColumn(what), BarColumn(), TextColumn("{task.percentage:.0f} %"))
    console = Console(stderr=True)
    with Progress(
        *columns,
        TimeRemainingColumn(),
        console=console,
        transient=True,
        disable=not console.is_terminal,
    ) as bar:
        task = bar.add_task(what)
        yield lambda done, total: bar.update(task, completed=done, total=total)


def _print_stats(found: TraceStats) -> None:
    console = wide_console(100)
    table = Table(title=f"{found.name} ({found.format})", show_header=False, title_justify="left")
    for label, value in stats_rows(found):
        table.add_row(label, value)
    console.print(table)
    for reason, count in found.dropped.items():
        console.print(f"dropped: {count} x {reason}", highlight=False)
    for sentence in found.assumptions:
        console.print(f"assumed: {sentence}", highlight=False)


def _command_of(name: str) -> Callable[..., None]:
    """The command of one generator; its knobs become options, so that they are listed once."""
    model = GENERATORS[name][0]

    def command(**values: Any) -> None:
        arrivals: dict[str, object] = {"process": values["arrivals"], "cv": values["cv"]}
        if values["arrivals"] == "given" or values["times"] is not None:
            arrivals["times_s"] = read_times(values["times"])
        else:
            arrivals["rate_per_s"] = values["rate_per_s"]
        options = {"generator": name, **nested(model, values), "arrivals": arrivals}
        stream = open_trace(None, "generate", options=options, seed=values["seed"])
        count = write_trace(stream, values["out"], values["to"])
        typer.echo(f"{count} requests written to {values['out']} as {values['to']}")

    command.__doc__ = f"Write a {name} workload. Example: hybridsim trace generate {name} x.jsonl"
    parameters = [*_GENERATE_PARAMETERS, *(_parameter(knob) for knob in knobs(model))]
    command.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    return command


def _parameter(knob: Knob) -> inspect.Parameter:
    return _argument(knob.name, knob.kind, knob.default, typer.Option(help=knob.help))


def _argument(name: str, kind: Any, default: Any, about: Any) -> inspect.Parameter:
    return inspect.Parameter(
        name,
        inspect.Parameter.KEYWORD_ONLY,
        default=default,
        annotation=Annotated[kind, about],
    )


_GENERATE_PARAMETERS = [
    _argument("out", Path, inspect.Parameter.empty, typer.Argument(help="File to write.")),
    _argument("to", str, "segments", typer.Option(help=f"One of {', '.join(WRITERS)}.")),
    _argument("seed", int, 0, typer.Option(help="Seed of everything that is drawn.")),
    _argument("arrivals", str, "poisson", typer.Option(help="poisson, gamma or given.")),
    _argument("rate_per_s", float, 1.0, typer.Option(help="Mean arrivals a second.")),
    _argument("cv", float, 1.0, typer.Option(help="Gamma: coefficient of variation of gaps.")),
    _argument(
        "times", Path | None, None, typer.Option(help="Given: file with a time in s a line.")
    ),
]

for _name in GENERATORS:
    generate_app.command(_name)(_command_of(_name))
