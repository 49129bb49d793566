"""Heat maps of results/policies: hit rate of every checkpoint policy with every eviction policy.

    python experiments/policy_figures.py

Reads the folder's tables, writes a figure beside them for each entry of FIGURES. The colour is a
rate's share of the proven best in the same memory, so that both models compare.
"""

from pathlib import Path
from typing import Annotated, Any

import matplotlib as mpl
import pandas as pd
import typer

mpl.use("agg")
from matplotlib import pyplot as plt  # noqa: E402

FOLDER = Path(__file__).resolve().parent.parent / "results" / "policies"
# name of the figure -> its title and its tables
FIGURES = {
    "conversation": ("conversation", ("conversation", "marked-conversation")),
    "weka": ("coding agents", ("weka", "marked-weka")),
    "agents-tight": ("coding agents that overlap", ("agents-tight",)),
}
ORACLES = ["session_end", "belady"]
MODEL, CHECKPOINT, EVICTION, THINNING = (
    "model", "cache.checkpoint", "cache.eviction", "cache.thinning",
)  # fmt: skip


def read_rows(folder: Path, tables: tuple[str, ...]) -> pd.DataFrame:
    """All rows of the tables; `row` and `column` are what a row's cell is called in the figure."""
    rows = pd.concat([pd.read_csv(folder / f"{name}.csv") for name in tables], ignore_index=True)
    rules = rows[THINNING] if THINNING in rows else pd.Series("", index=rows.index)
    thinning = rules.map(lambda x: f", {short(x)}" if isinstance(x, str) and x else "")
    rows["row"] = rows[CHECKPOINT].map(short) + thinning
    rows["column"] = rows[EVICTION].map(short)
    return rows


def short(name: str) -> str:
    """`every(tokens=1024)` as `every 1024`."""
    head, _, options = name.rstrip(")").partition("(")
    values = [part.partition("=")[2] for part in options.split(", ") if part]
    return " ".join([head, *values[:1]])


def order_of(rows: pd.DataFrame) -> tuple[list[str], list[str]]:
    """Names of rows and columns: those with the best rates first, what knows the future last."""
    share = rows.token_hit_rate / rows.bound_token_hit_rate
    online = rows.assign(share=share)[~rows["column"].isin(ORACLES)]
    by_row = online.groupby("row").share.max().sort_values(ascending=False)
    by_column = online.groupby("column").share.mean().sort_values(ascending=False)
    return list(by_row.index), [*by_column.index, *ORACLES]


def draw_panel(axes: Any, rows: pd.DataFrame, names: list[str], columns: list[str]) -> None:
    """One model's rates in percent."""
    table = rows.pivot_table(index="row", columns="column", values="token_hit_rate")
    table = 100 * table.reindex(index=names, columns=columns)
    first = rows.iloc[0]
    low = 100 * max(rows.feasible_token_hit_rate.max(), rows.token_hit_rate.max())
    high = 100 * first.bound_token_hit_rate
    axes.imshow(table / high, cmap="YlGnBu", vmin=0, vmax=1, aspect="auto")
    for (y, x), value in ((p, table.iloc[p]) for p in pd.MultiIndex.from_product(
        [range(len(names)), range(len(columns))])):  # fmt: skip
        ink = "white" if value / high > 0.6 else "black"
        axes.text(x, y, f"{value:.1f}", ha="center", va="center", fontsize=6.5, color=ink)
    axes.axvline(len(columns) - len(ORACLES) - 0.5, color="crimson", linewidth=1)
    axes.set_xticks(range(len(columns)), columns, rotation=45, ha="right", fontsize=7.5)
    axes.set_yticks(range(len(names)), names, fontsize=7.5)
    axes.set_title(
        f"{first[MODEL]}, {first['cache.memory']}: best possible {low:.1f} to {high:.1f}, "
        f"infinite cache {100 * first.ceiling_token_hit_rate:.1f}",
        fontsize=9,
    )


def draw(rows: pd.DataFrame, title: str, path: Path) -> None:
    """A panel a model."""
    names, columns = order_of(rows)
    models = list(rows[MODEL].unique())
    height = 1.2 + len(models) * (0.6 + 0.21 * len(names))
    figure, panels = plt.subplots(len(models), 1, figsize=(9.5, height), squeeze=False)
    for axes, model in zip(panels[:, 0], models, strict=True):
        draw_panel(axes, rows[rows[MODEL] == model], names, columns)
    figure.suptitle(
        f"{title}: token hit rate in %, colour: share of the best possible; right of the red line "
        "the future is known",
        fontsize=9,
    )
    figure.tight_layout()
    figure.savefig(path, dpi=130)
    plt.close(figure)


def main(folder: Annotated[Path, typer.Option(help="Folder of the tables.")] = FOLDER) -> None:
    """Draw a figure for each trace."""
    for name, (title, tables) in FIGURES.items():
        draw(read_rows(folder, tables), title, folder / f"{name}.png")


if __name__ == "__main__":
    typer.run(main)
