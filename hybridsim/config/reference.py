"""The table of an experiment's keys for docs/experiments.md, made from the schema.

python -m hybridsim.config.reference docs/experiments.md
"""

import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from pydantic import BaseModel
from pydantic.fields import FieldInfo

from hybridsim.config.schema import (
    ArrivalsConfig,
    CacheConfig,
    ExperimentHead,
    Named,
    PlotConfig,
    RunConfig,
    SchedulerConfig,
    TraceConfig,
)

START, END = "<!-- keys: made from the schema -->", "<!-- end of keys -->"
_INSIDE: dict[str, type[BaseModel]] = {
    "trace": TraceConfig,
    "cache": CacheConfig,
    "scheduler": SchedulerConfig,
    "arrivals": ArrivalsConfig,
}


def reference() -> str:
    """A Markdown table: key, allowed values, default, meaning."""
    rows = ["| key | allowed | default | meaning |", "|---|---|---|---|"]
    rows += _rows(ExperimentHead, "", ("name",))
    for key in RunConfig.model_fields:
        rows += _rows(RunConfig, "", (key,))
        if key in _INSIDE:
            rows += _rows(_INSIDE[key], f"{key}.", tuple(_INSIDE[key].model_fields))
    rows += _rows(ExperimentHead, "", ("plots",))
    rows += _rows(PlotConfig, "plots[].", tuple(PlotConfig.model_fields))
    return "\n".join(rows)


def _rows(model: type[BaseModel], prefix: str, keys: tuple[str, ...]) -> Iterator[str]:
    for key in keys:
        field = model.model_fields[key]
        extra = field.json_schema_extra
        allowed = extra["allowed"] if isinstance(extra, dict) else ""
        cells = (f"`{prefix}{key}`", allowed, _default(field), field.description)
        yield "| " + " | ".join(map(str, cells)) + " |"


def _default(field: FieldInfo) -> str:
    if field.is_required():
        return "required"
    value: Any = field.default
    if isinstance(value, Named):
        return f"`{value}`"
    if value is None or value == () or isinstance(value, BaseModel):
        return ""
    return f"`{value}`" if isinstance(value, str) else f"`{json.dumps(value)}`"


def renewed(page: str) -> str:
    """The page with its table made anew between the two marks."""
    before, _, rest = page.partition(START)
    _, _, after = rest.partition(END)
    return f"{before}{START}\n{reference()}\n{END}{after}"


if __name__ == "__main__":
    path = Path(sys.argv[1])
    path.write_text(renewed(path.read_text(encoding="utf-8")), encoding="utf-8")
