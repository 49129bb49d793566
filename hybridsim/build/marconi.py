"""The engine of Marconi's artifact, from values of a config."""

from typing import Literal

from pydantic import BaseModel, ConfigDict, Field

from hybridsim.build.base import Built, Capacity, Limits, needed, serve_all
from hybridsim.config import UNLIMITED, CacheConfig
from hybridsim.config.values import StrictInt
from hybridsim.engines.marconi.engine import MarconiServer, formulas_for
from hybridsim.errors import UserError
from hybridsim.models import ModelSpec


class MarconiOptions(BaseModel):
    """Options of `engine: marconi`; see hybridsim.engines.marconi."""

    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)
    policy: Literal["v1", "v2", "v3", "vllm_plus"] = Field(
        "v3", json_schema_extra={"allowed": "v1, v2, v3, vllm_plus"}
    )
    alpha: float = Field(1.0, ge=0, strict=True, json_schema_extra={"allowed": "a number >= 0"})
    variant: Literal["artifact", "corrected"] = Field(
        "corrected", json_schema_extra={"allowed": "artifact, corrected"}
    )
    multiplier: StrictInt = Field(5, ge=1, json_schema_extra={"allowed": "an integer >= 1"})


_BOUND_NOTE = (
    "bound: running requests take no room, and where this engine kept more than its capacity, "
    "any policy may keep as much at that moment"
)


def build_marconi(cache: CacheConfig, model: ModelSpec, options: MarconiOptions) -> Built:
    """One pool of `cache.memory` bytes for KV and states."""
    if cache.memory == UNLIMITED:
        raise UserError("cache.memory", "unlimited; allowed: a size for this engine's one pool")
    capacity_bytes = needed(cache.memory, "cache.memory", "a size")
    server = MarconiServer(
        capacity_bytes,
        formulas_for(model),
        options.policy,
        alpha=options.alpha,
        variant=options.variant,
        multiplier=options.multiplier,
    )

    def outcome() -> list[str]:
        alpha = server.tuned_alpha
        return [] if alpha is None else [f"v2 settled on alpha {alpha:g}"]

    return Built(
        lambda requests, ideal, progress: serve_all(server, requests, progress),
        None,
        lambda: {
            "peak_kv_bytes": server.peak_kv_bytes,
            "peak_state_bytes": server.peak_state_bytes,
        },
        Capacity(capacity_bytes),
        model,
        keeps_outputs=True,
        keeps_last_output=True,
        caps_last_token=False,
        limits=Limits(
            model.kv_bytes_per_token,
            model.state_bytes,
            capacity_bytes,
            takes_room=False,
            held_bytes=lambda: server.held_bytes,
            note=_BOUND_NOTE,
        ),
        notes=("Marconi's artifact: no clock, logical time, prompt and output kept whole",),
        outcome=outcome,
    )
