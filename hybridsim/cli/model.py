"""`hybridsim model list | show | ledger`."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from hybridsim.errors import UserError, shorten
from hybridsim.terminal import wide_console

if TYPE_CHECKING:
    from rich.table import Table

    from hybridsim.models import ModelSpec

_LIST_HELP = """List the models of the catalogue.

Example: hybridsim model list
"""
_SHOW_HELP = """Show a model: parameters, bytes per token, bytes of a state, cost of a checkpoint.

Example: hybridsim model show qwen3.5-0.8b --tp 2 --kv-dtype fp8
"""
_LEDGER_HELP = """Compare the memory of one request with full attention everywhere.

Example: hybridsim model ledger handbook-48 --contexts 512,1024,4096 --figure ledger.png
"""
_CONTEXTS = "512,1024,4096,32768,262144"

_Model = Annotated[str, typer.Argument(help="Catalogue name, or the path of a config.json.")]
_Tp = Annotated[int, typer.Option("--tp", help="Show one of this many tensor-parallel ranks.")]
_KvDtype = Annotated[str | None, typer.Option("--kv-dtype", help="Number format of KV.")]
_StateDtype = Annotated[str | None, typer.Option("--state-dtype", help="Of recurrent states.")]
_ExtraColumns = Annotated[
    int,
    typer.Option(
        "--extra-conv-columns",
        min=0,
        help="Convolution columns kept beyond kernel - 1: 1 in transformers, one a draft token.",
    ),
]


def register(app: typer.Typer) -> None:
    """Add the commands."""
    model = typer.Typer(
        help="Models: shapes, parameters, bytes. Example: hybridsim model show qwen3.5-0.8b",
        no_args_is_help=True,
    )
    model.command("list", help=_LIST_HELP)(_list)
    model.command("show", help=_SHOW_HELP)(_show)
    model.command("ledger", help=_LEDGER_HELP)(_ledger)
    app.add_typer(model, name="model")


def _list() -> None:
    from hybridsim.models import CATALOGUE, ledger
    from hybridsim.units import format_bytes

    table = _table(
        "model", "layers", "params", "active", "KV/token", "state", "in tokens", "source"
    )
    for name, build in CATALOGUE.items():
        spec = build()
        figures = ledger(spec)
        table.add_row(
            name,
            f"{len(spec.recurrent_layers)} + {len(spec.attention_layers)}",
            _billions(spec.num_params),
            _billions(spec.num_active_params),
            format_bytes(spec.kv_bytes_per_token),
            format_bytes(spec.state_bytes),
            _count(figures.checkpoint_tokens),
            f"{spec.confidence}: {spec.source}",
        )
    _print(table)
    typer.echo("layers: recurrent + attention. in tokens: one state as tokens of KV.")


def _show(
    name: _Model,
    tp: _Tp = 1,
    kv_dtype: _KvDtype = None,
    state_dtype: _StateDtype = None,
    extra_columns: _ExtraColumns = 0,
) -> None:
    spec = _get(name, tp, kv_dtype, state_dtype, extra_columns)
    table = _table("", "")
    for label, text in [*_shape_lines(spec), *_byte_lines(spec)]:
        table.add_row(label, text)
    _print(table)


def _ledger(
    name: _Model,
    contexts: Annotated[str, typer.Option(help="Context lengths, with commas.")] = _CONTEXTS,
    figure: Annotated[
        Path | None, typer.Option(help="Draw into this file (png, svg, pdf).")
    ] = None,
    tp: _Tp = 1,
    kv_dtype: _KvDtype = None,
    state_dtype: _StateDtype = None,
    extra_columns: _ExtraColumns = 0,
) -> None:
    from hybridsim.models import ledger, ledger_rows
    from hybridsim.units import format_bytes

    lengths = _parse_contexts(contexts)
    spec = _get(name, tp, kv_dtype, state_dtype, extra_columns)
    rows, figures = ledger_rows(spec, lengths), ledger(spec)
    table = _table("context", "all full", "hybrid", "ratio", "checkpoint / its KV")
    for row in rows:
        table.add_row(
            f"{row.context_tokens:,}",
            format_bytes(row.all_full_bytes),
            format_bytes(row.hybrid_bytes),
            f"{row.ratio:.0%}",
            _ratio(row.checkpoint_ratio),
        )
    _print(table)
    typer.echo(f"crossover: {_count(figures.crossover_tokens)} tokens")
    if figure is not None:
        from hybridsim.report.ledger_figure import draw_ledger

        curve = ledger_rows(spec, _between(lengths))
        draw_ledger(figure, spec.name, rows, curve, figures.crossover_tokens)
        typer.echo(f"figure: {figure}")


def _get(
    name: str, tp: int, kv_dtype: str | None, state_dtype: str | None, extra_columns: int
) -> "ModelSpec":
    from hybridsim.models import get_model

    chosen = {"kv": kv_dtype, "state": state_dtype}
    spec = get_model(name).with_dtypes(**{key: value for key, value in chosen.items() if value})
    if extra_columns:
        spec = spec.with_conv_columns(extra_columns)
    return spec.for_rank(tp)


def _parse_contexts(text: str) -> list[int]:
    """Rising positive lengths in tokens; UserError otherwise."""
    lengths = []
    for part in text.split(","):
        digits = part.strip()
        # the length first: Python refuses to read thousands of digits
        if not digits.isdecimal() or len(digits) > 15 or int(digits) < 1:
            allowed = "whole numbers from 1, of at most 15 digits"
            raise UserError(
                "--contexts", f"{shorten(digits)!r} is not a length; allowed: {allowed}"
            )
        lengths.append(int(digits))
    return sorted(set(lengths))


def _between(lengths: list[int]) -> list[int]:
    """Up to 200 contexts from the shortest to the longest, evenly on a log scale."""
    import numpy as np

    return [int(tokens) for tokens in np.unique(np.geomspace(lengths[0], lengths[-1], 200).round())]


def _shape_lines(spec: "ModelSpec") -> list[tuple[str, str]]:
    from collections import Counter

    kinds = Counter(layer.mixer.kind for layer in spec.layers if layer.mixer)
    rank = f", one rank of {spec.tp}" if spec.tp > 1 else ""
    return [
        ("model", f"{spec.name}{rank}"),
        ("source", f"{spec.source} ({spec.confidence})"),
        ("layers", f"{len(spec.layers)}: " + ", ".join(f"{n} {kind}" for kind, n in kinds.items())),
        ("hidden, vocabulary", f"{spec.hidden:,}, {spec.vocab:,}" + ", tied" * spec.tied),
        ("parameters", f"{spec.num_params:,} ({_billions(spec.num_params)})"),
        ("active parameters", f"{spec.num_active_params:,} ({_billions(spec.num_active_params)})"),
    ]


def _byte_lines(spec: "ModelSpec") -> list[tuple[str, str]]:
    from hybridsim.models import ledger

    figures, dtypes = ledger(spec), spec.dtypes
    lines = [
        (f"weights ({dtypes.weights})", _bytes(spec.weight_bytes)),
        (f"KV per token ({dtypes.kv})", _bytes(figures.kv_bytes_per_token)),
        ("  were all layers full", _bytes(figures.all_full_kv_bytes_per_token)),
        (f"recurrent state ({dtypes.state})", _bytes(figures.recurrent_bytes)),
        (f"convolution inputs ({dtypes.conv})", _bytes(figures.conv_bytes)),
        ("one checkpoint", _bytes(figures.state_bytes)),
        ("  as tokens of KV", _count(figures.checkpoint_tokens)),
        ("crossover with all full", f"{_count(figures.crossover_tokens)} tokens"),
    ]
    return lines if spec.recurrent_layers else lines[:2]


def _bytes(size_bytes: int) -> str:
    from hybridsim.units import format_bytes

    return f"{size_bytes:,} B ({format_bytes(size_bytes)})"


def _billions(count: int) -> str:
    return f"{count / 1e9:.4g} B" if count >= 1e9 else f"{count / 1e6:.4g} M"


def _ratio(number: float) -> str:
    return f"{number:.1f}x" if number >= 0.1 else f"{number:.2g}x"


def _count(number: int | None) -> str:
    return "-" if number is None else f"{number:,}"


def _table(*headings: str) -> "Table":
    from rich import box
    from rich.table import Table

    table = Table(box=box.SIMPLE_HEAD, show_header=any(headings), pad_edge=False)
    for index, heading in enumerate(headings):
        last = index == len(headings) - 1
        right = any(headings) and index > 0 and not (last and heading == "source")
        table.add_column(heading, justify="right" if right else "left", no_wrap=not last)
    return table


def _print(table: "Table") -> None:
    wide_console(160, highlight=False).print(table)
