"""Options of trace readers: pydantic models, and their errors as one clear UserError."""

from collections.abc import Mapping
from typing import Any, Literal, TypeVar

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from hybridsim.errors import UserError, shorten, unknown_name
from hybridsim.traces.marks import MarkRule


class Strict(BaseModel):
    """Unknown keys are errors; values never change after reading."""

    model_config = ConfigDict(extra="forbid", frozen=True)


class Arrivals(Strict):
    """When requests arrive. Times are seconds."""

    process: Literal["recorded", "poisson", "gamma", "given"] = Field(
        default="recorded", description="recorded times, drawn ones, or a list of given ones"
    )
    rate_per_s: float | None = Field(
        default=None,
        gt=0,
        allow_inf_nan=False,
        description="mean arrivals a second (poisson, gamma)",
    )
    cv: float = Field(
        default=1.0,
        ge=1e-3,
        le=1e3,
        allow_inf_nan=False,
        description="coefficient of variation of gaps (gamma)",
    )
    times_s: tuple[float, ...] | None = Field(
        default=None, description="arrival times in rising order"
    )
    of: Literal["auto", "requests", "sessions"] = Field(
        default="auto",
        description="what arrives; auto: sessions where the trace links their requests",
    )
    speedup: float = Field(
        default=1.0, gt=0, allow_inf_nan=False, description="recorded times are divided by this"
    )


class TraceOptions(Strict):
    """Options of every format."""

    arrivals: Arrivals = Arrivals()
    sort: bool = Field(default=False, description="sort by arrival where the file is out of order")
    marks: tuple[MarkRule, ...] = Field(
        default=(), description="where applications ask for checkpoints (policy `marked`)"
    )


class GridOptions(TraceOptions):
    """Options of formats that name blocks of equal size."""

    block_size: int = Field(default=512, ge=1, le=2**20, description="tokens a block id stands for")


Model = TypeVar("Model", bound=BaseModel)


def parse_options(
    model: type[Model], options: Mapping[str, object], prefix: str = "trace"
) -> Model:
    """`options` as a checked `model`; a UserError names `prefix.<key>`, value and allowed ones."""
    try:
        return model.model_validate(dict(options))
    except ValidationError as error:
        raise _as_user_error(model, error.errors()[0], prefix) from None


def _as_user_error(model: type[BaseModel], detail: Any, prefix: str) -> UserError:
    place = ".".join([prefix, *map(str, detail["loc"])])
    if detail["type"] == "extra_forbidden":
        owner = _owner(model, detail["loc"][:-1])
        parent, _, key = place.rpartition(".")
        return unknown_name(parent, key, sorted(owner.model_fields))
    value = "missing" if detail["type"] == "missing" else shorten(repr(detail["input"]))
    message = detail["msg"].removeprefix("Value error, ")
    message = message.split(" or instance of ")[0].replace("valid dictionary", "mapping")
    message = message.replace("valid tuple", "valid list")  # what YAML and people call it
    return UserError(place, f"{value}: {message}")


def _owner(model: type[BaseModel], path: tuple[Any, ...]) -> type[BaseModel]:
    """The nested model at `path`; the outer one where the path leads elsewhere (unions)."""
    for key in path:
        field = model.model_fields.get(str(key))
        inner = getattr(field, "annotation", None)
        candidates = [inner, *getattr(inner, "__args__", ())]
        nested = [c for c in candidates if isinstance(c, type) and issubclass(c, BaseModel)]
        if not nested:
            return model
        model = nested[0]
    return model
