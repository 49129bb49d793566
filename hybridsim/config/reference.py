"""The table of an experiment's keys for docs/experiments.md, made from the schema.

python -m hybridsim.config.reference docs/experiments.md
"""

import json
from collections.abc import Iterator
from typing import Any

from pydantic import BaseModel
from pydantic.fields import FieldInfo

from hybridsim.config.schema import (
    ArrivalsConfig,
    CacheConfig,
    ExperimentHead,
    PlotConfig,
    RunConfig,
    SchedulerConfig,
    TraceConfig,
)
from hybridsim.config.values import Named
from hybridsim.docs import MadePart, markdown_table

_INSIDE: dict[str, type[BaseModel]] = {
    "trace": TraceConfig,
    "cache": CacheConfig,
    "scheduler": SchedulerConfig,
    "arrivals": ArrivalsConfig,
}


def reference() -> str:
    """A Markdown table: key, allowed values, default, meaning."""
    rows = [*_rows(ExperimentHead, "", ("name",))]
    for key in RunConfig.model_fields:
        rows += _rows(RunConfig, "", (key,))
        if key in _INSIDE:
            rows += _rows(_INSIDE[key], f"{key}.", tuple(_INSIDE[key].model_fields))
    rows += _rows(ExperimentHead, "", ("plots",))
    rows += _rows(PlotConfig, "plots[].", tuple(PlotConfig.model_fields))
    return markdown_table(("key", "allowed", "default", "meaning"), rows)


def _rows(model: type[BaseModel], prefix: str, keys: tuple[str, ...]) -> Iterator[list[str]]:
    for key in keys:
        field = model.model_fields[key]
        extra = field.json_schema_extra
        allowed = extra["allowed"] if isinstance(extra, dict) else ""
        yield [f"`{prefix}{key}`", str(allowed), _default(field), str(field.description)]


def _default(field: FieldInfo) -> str:
    if field.is_required():
        return "required"
    value: Any = field.default
    if isinstance(value, Named):
        return f"`{value}`"
    if value is None or value == () or isinstance(value, BaseModel):
        return ""
    return f"`{value}`" if isinstance(value, str) else f"`{json.dumps(value)}`"


PART = MadePart("<!-- keys: made from the schema -->", "<!-- end of keys -->", reference)

if __name__ == "__main__":
    PART.main()
