"""What files of measured times must look like, checked before anything is read from them."""

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field, StrictStr, model_validator

from hybridsim.cost.parts import PARTS
from hybridsim.errors import UserError
from hybridsim.files import read_json
from hybridsim.models.validate import Strict, checked

_Number = Annotated[float, Field(allow_inf_nan=False)]
_Seconds = Annotated[float, Field(gt=0, allow_inf_nan=False)]
_Count = Annotated[int, Field(ge=0, le=2**53)]  # up to there a float is exact
_Positive = Annotated[int, Field(ge=1)]


class _Loose(BaseModel):
    """No silent conversions; keys that are not named here may be there too."""

    model_config = ConfigDict(extra="ignore", strict=True)


class _Point(_Loose):
    at: list[_Count] = Field(min_length=1, max_length=2)
    median_s: _Seconds
    low_s: _Seconds
    high_s: _Seconds


class _Operator(_Loose):
    axes: list[StrictStr] = Field(min_length=1, max_length=2)
    points: list[_Point]


class _Step(_Loose):
    chunks: list[Annotated[list[_Count], Field(min_length=2, max_length=2)]]
    num_decodes: _Count
    decode_context_tokens: _Count
    median_s: _Seconds

    @model_validator(mode="after")
    def _has_tokens(self) -> "_Step":
        if not self.num_decodes and not any(new for new, _ in self.chunks):
            raise ValueError("a step without tokens; allowed: one that computes something")
        return self


class _Fit(Strict):
    overhead_s: _Number = 0.0
    scale: Annotated[float, Field(gt=0, allow_inf_nan=False)] = 1.0
    error: Annotated[float, Field(ge=0, allow_inf_nan=False)] = 0.0


class _Profile(_Loose):
    model: StrictStr
    tp: _Positive
    machine: dict[str, StrictStr]
    state_bytes: Annotated[float, Field(ge=1, allow_inf_nan=False)]
    operators: dict[str, _Operator]
    fit: _Fit = Field(default_factory=_Fit)
    fit_steps: list[_Step] = []


class _Steps(_Loose):
    steps: list[_Step]


class _Time(_Loose):
    median_s: _Seconds


class _Kernel(_Loose):
    op: StrictStr
    ours: _Time
    share_of_floor: Annotated[float, Field(ge=0, allow_inf_nan=False)]


class _Kernels(_Loose):
    rows: list[_Kernel]


def check_profile(data: Mapping[str, Any], place: str) -> None:
    """UserError naming the first value that a profile cannot have."""
    profile = checked(_Profile, data, place)
    for name, operator in profile.operators.items():
        _check_operator(name, operator, f"{place}.operators.{name}")


def _check_operator(name: str, operator: _Operator, place: str) -> None:
    """As many axes as the part has, and every point once."""
    axes = len(PARTS[name].axes) if name in PARTS else len(operator.axes)
    if len(operator.axes) != axes:
        raise UserError(f"{place}.axes", f"{operator.axes} is not allowed; allowed: {axes} names")
    seen: set[tuple[int, ...]] = set()
    for index, point in enumerate(operator.points):
        here, at = f"{place}.points.{index}", tuple(point.at)
        # On the first axis are tokens, rows, requests or slots, of which nothing has none.
        if len(at) != axes or at[0] == 0:
            allowed = "one whole number" if axes == 1 else f"{axes} whole numbers"
            raise UserError(f"{here}.at", f"{point.at}; allowed: {allowed}, the first from 1")
        if at in seen:
            raise UserError(f"{here}.at", f"{point.at} is there twice; allowed: once")
        if not point.low_s <= point.median_s <= point.high_s:
            raise UserError(here, "its times are out of order; allowed: low <= median <= high")
        seen.add(at)


def read_steps(path: Path, model: str, tp: int, place: str | None = None) -> list[dict[str, Any]]:
    """Whole steps as `calibrate --held-out-out` writes them, of one of `tp` ranks of `model`.

    UserError, at `place` or at the file, where there are none or they are of something else.
    """
    here, name = (str(path), "") if place is None else (place, f"{str(path)!r} ")
    data = read_json(path, place)
    if not isinstance(data, dict) or not data.get("steps"):
        raise UserError(here, f"{name}holds no steps; allowed: a held-out file")
    theirs = data.get("model"), data.get("tp", 1)
    if theirs != (model, tp):
        raise UserError(here, f"{name}is of {theirs[0]}, tp {theirs[1]}, not of {model}, tp {tp}")
    check_steps(data, here)
    return list(data["steps"])


def read_kernels(path: Path, place: str) -> list[dict[str, Any]]:
    """Rows of the table that `python -m hybridsim.kernels.bench` writes; UserError at `place`."""
    data = read_json(path, place)
    if not isinstance(data, dict):
        raise UserError(place, f"{str(path)!r} is no table of kernels; allowed: a bench's file")
    checked(_Kernels, data, place)
    return list(data["rows"])


def check_steps(data: Mapping[str, Any], place: str) -> None:
    """UserError naming the first value that a file of steps cannot have."""
    checked(_Steps, data, place)
