"""Whether a measured profile is about the GPU and the model that it is asked for."""

import re
from collections.abc import Iterable

from hybridsim.cost.gpus import GPUS
from hybridsim.cost.measured import EXPERTS, Profile
from hybridsim.errors import UserError
from hybridsim.models import ModelSpec, MoeSpec, get_model

# What measured times depend on and what a changed model may have otherwise, under the same name.
_SIZES = ("kv_bytes_per_token", "state_bytes", "weight_bytes")


def check_model(profile: Profile, model: ModelSpec, tp: int, file_name: str, place: str) -> None:
    """UserError unless the profile is of one of `tp` ranks of this model, number formats included.

    Calibration measures models as the catalogue has them.
    """
    if (profile.model, profile.tp) != (model.name, tp):
        raise UserError(
            f"{place}.profile",
            f"{file_name} is of {profile.model} with tp {profile.tp}, not {model.name} with {tp}",
        )
    has_experts = any(isinstance(ffn, MoeSpec) for ffn in model.ffn_layers)
    if has_experts != (EXPERTS in profile.tables):
        says = "lacks {}, which {} has" if has_experts else "has {}, which {} lacks"
        raise UserError(f"{file_name}.operators", says.format(EXPERTS, model.name))
    try:
        measured = get_model(profile.model).for_rank(tp)
    except UserError:
        return  # a model of somebody's own: there is nothing to compare with
    rank = model.for_rank(tp)
    for size in _SIZES:
        ours, theirs = getattr(rank, size), getattr(measured, size)
        if ours != theirs:
            raise UserError(
                f"{place}.cost",
                f"{file_name} was measured with {size} {theirs}, this model has {ours}; allowed: "
                f"the model as it was measured (without other dtypes), or cost: roofline",
            )
    if profile.state_bytes != measured.state_bytes:
        raise UserError(
            f"{file_name}.state_bytes",
            f"{profile.state_bytes:g} is not what a state of {model.name} takes; allowed: "
            f"{measured.state_bytes}",
        )


def check_gpu(profile: Profile, gpu_name: str | None, file_name: str, place: str) -> None:
    """UserError where a known GPU is named and the profile was measured on another card.

    Else the memory of one card would go with the times of another. Names of one's own may stand
    for any card.
    """
    card = profile.machine.get("gpu")
    if gpu_name not in GPUS or card is None:
        return
    if not set(_words(gpu_name)) <= set(_words(card)):
        raise UserError(
            f"{place}.name",
            f"{gpu_name} is not the card of {file_name}, {card}; allowed: its own name, or none",
        )


def check_no_rates(given: Iterable[str], place: str) -> None:
    """UserError for a rate, share or time beside a profile, which has all of them measured."""
    for key in given:
        raise UserError(
            f"{place}.{key}", "has no meaning with cost measured; allowed: roofline, or no such key"
        )


def _words(name: str) -> list[str]:
    return re.findall(r"[a-z0-9]+", name.lower())
