"""What a report takes from a run's meta.json, checked, since people edit and cut files."""

from pathlib import Path
from typing import Annotated, Any

import orjson
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from hybridsim.errors import UserError, shorten

WHOLE = "allowed: a whole folder (run it with --resume)"


class _Part(BaseModel):
    model_config = ConfigDict(extra="allow", strict=True)


class _TraceMeta(_Part):
    name: str
    format: str
    num_requests: int
    dropped: dict[str, int]


class _Meta(_Part):
    """The keys that figures and pages read; others are kept as they are."""

    versions: dict[str, str]
    date: str
    wall_s: float
    trace: _TraceMeta
    num_warmup_requests: Annotated[int, Field(ge=0)]
    assumptions: list[str]
    refused: list[str]
    outcome: list[str] = []
    laws_checked: list[str]


def read_meta(path: Path) -> dict[str, Any]:
    """The content of a meta.json; UserError where it is missing, damaged or lacks something."""
    try:
        meta: dict[str, Any] = orjson.loads(path.read_bytes())
    except (OSError, orjson.JSONDecodeError):
        raise UserError(str(path), f"is missing or damaged; {WHOLE}") from None
    try:
        _Meta.model_validate(meta)
    except ValidationError as error:
        finding = error.errors()[0]
        key = ".".join(map(str, finding["loc"]))
        found = "is missing" if finding["type"] == "missing" else shorten(repr(finding["input"]))
        raise UserError(f"{path}: {key}" if key else str(path), f"{found}; {WHOLE}") from None
    return meta
