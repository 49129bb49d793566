"""What files of measured times must look like, checked before anything is read from them."""

from collections.abc import Mapping
from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field, StrictStr

from hybridsim.errors import UserError
from hybridsim.models.validate import Strict, checked

_Number = Annotated[float, Field(allow_inf_nan=False)]
_Seconds = Annotated[float, Field(ge=0, allow_inf_nan=False)]
_Count = Annotated[int, Field(ge=0)]
_Positive = Annotated[int, Field(ge=1)]


class _Loose(BaseModel):
    """No silent conversions; keys that are not named here may be there too."""

    model_config = ConfigDict(extra="ignore", strict=True)


class _Point(_Loose):
    at: list[_Count] = Field(min_length=1, max_length=2)
    median_s: _Number
    low_s: _Seconds
    high_s: _Seconds


class _Operator(_Loose):
    axes: list[StrictStr] = Field(min_length=1, max_length=2)
    points: list[_Point]


class _Step(_Loose):
    chunks: list[Annotated[list[_Count], Field(min_length=2, max_length=2)]]
    num_decodes: _Count
    decode_context_tokens: _Count
    median_s: Annotated[float, Field(gt=0, allow_inf_nan=False)]


class _Fit(Strict):
    overhead_s: _Number = 0.0
    scale: Annotated[float, Field(gt=0, allow_inf_nan=False)] = 1.0
    error: Annotated[float, Field(ge=0, allow_inf_nan=False)] = 0.0


class _Profile(_Loose):
    model: StrictStr
    tp: _Positive
    machine: dict[str, StrictStr]
    state_bytes: Annotated[float, Field(ge=0, allow_inf_nan=False)]
    operators: dict[str, _Operator]
    fit: _Fit = Field(default_factory=_Fit)
    fit_steps: list[_Step] = []


class _Steps(_Loose):
    steps: list[_Step]


def check_profile(data: Mapping[str, Any], place: str) -> None:
    """UserError naming the first value that a profile cannot have."""
    profile = checked(_Profile, data, place)
    places = [(f"{place}.operators.{name}", x) for name, x in profile.operators.items()]
    for where, operator in places:
        for index, point in enumerate(operator.points):
            if len(point.at) != len(operator.axes):
                raise UserError(
                    f"{where}.points.{index}.at",
                    f"{point.at} is not allowed; allowed: {len(operator.axes)} whole numbers",
                )


def check_steps(data: Mapping[str, Any], place: str) -> None:
    """UserError naming the first value that a file of steps cannot have."""
    checked(_Steps, data, place)
