"""The way in: a GPU's name or a mapping, and a model, become a cost model.

h200
infinite
{name: h200, cost: measured, profile: profile.json}
{name: h200, efficiency: {matmul: 0.8, step_overhead_s: 0.0005}}
{flops_per_s: 1.2e15, hbm_bytes_per_s: 4.0e12, memory: 96GiB, link_bytes_per_s: 3.0e11}
"""

from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import fields, replace
from pathlib import Path
from typing import Annotated, Any

from pydantic import BeforeValidator, Field

from hybridsim.cost.allreduce import Allreduce, allreduce_of
from hybridsim.cost.base import CostModel
from hybridsim.cost.efficiency import SHIPPED, Efficiency, measured_efficiency
from hybridsim.cost.gpus import GPUS, Gpu
from hybridsim.cost.infinite import InfiniteCost
from hybridsim.cost.matching import check_gpu, check_model, check_no_rates
from hybridsim.cost.measured import MeasuredCost, read_profile
from hybridsim.cost.profiles import shipped_profiles
from hybridsim.cost.roofline import RooflineCost
from hybridsim.errors import UserError, unknown_name
from hybridsim.models import ModelSpec
from hybridsim.models.validate import Strict, checked
from hybridsim.units import UNLIMITED, parse_bytes

# A cost model is made of a GPU, how well kernels use it, and the rank that runs on it.
COST_MODELS: dict[str, Callable[[Gpu, Efficiency, ModelSpec], CostModel]] = {
    "roofline": lambda gpu, efficiency, model: RooflineCost(model, gpu, efficiency),
    "infinite": lambda gpu, efficiency, model: InfiniteCost(),
}
_MEASURED = "measured"  # made of a profile instead
# What a profile of one rank cannot tell: how ranks talk to one another.
OF_LINK = frozenset({"link", "allreduce_latency_s"})
_INFINITE = "infinite"


def _read_number(value: object) -> object:
    """A number that YAML reads as a text, 1.2e15; what is none stays, and is refused."""
    if isinstance(value, str):
        with suppress(ValueError):
            return float(value)
    return value


_Number = Annotated[float, BeforeValidator(_read_number)]
# Bounds that no card comes near: beyond them times would leave the range of numbers.
_Rate = Annotated[_Number, Field(ge=1, allow_inf_nan=False)]
_Share = Annotated[_Number, Field(ge=1e-6, le=1)]
_Seconds = Annotated[_Number, Field(ge=0, le=3600)]


class _Efficiency(Strict):
    """Shares and times that replace the measured ones; see Efficiency.changed."""

    matmul: _Share | None = None
    attention: _Share | None = None
    scan: _Share | None = None
    memory: _Share | None = None
    link: _Share | None = None
    step_overhead_s: _Seconds | None = None
    layer_overhead_s: _Seconds | None = None
    allreduce_latency_s: _Seconds | None = None


class _GpuMapping(Strict):
    name: str | None = None
    cost: str | None = None
    profile: str | None = None
    flops_per_s: _Rate | None = None
    fp8_flops_per_s: _Rate | None = None
    hbm_bytes_per_s: _Rate | None = None
    link_bytes_per_s: _Rate | None = None
    memory: int | str | None = None
    efficiency: _Efficiency = Field(default_factory=_Efficiency)


def get_cost_model(
    gpu_value: object, model: ModelSpec, tp: int = 1, place: str = "gpu"
) -> CostModel:
    """The cost model of one of `tp` ranks of `model` on the GPU that `gpu_value` means.

    A name of GPUS, `infinite`, or a mapping: a known GPU changed, or one with rates of its own.
    `cost: measured` takes the shipped profile of this GPU and model, or the one in `profile`.
    UserError for unknown names, keys and impossible values.
    """
    mapping = _mapping(gpu_value, place)
    if mapping.name == _INFINITE:
        return _infinite(mapping, place)
    if _has_profile(mapping):
        return _measured(mapping, model, tp, place)
    name = "roofline" if mapping.cost is None else mapping.cost
    if name not in COST_MODELS:
        raise unknown_name(f"{place}.cost", name, [*COST_MODELS, _MEASURED])
    if mapping.profile is not None:
        raise UserError(f"{place}.profile", f"has no meaning with cost {name}; allowed: measured")
    gpu = _gpu(mapping, place)
    changes = mapping.efficiency.model_dump(exclude_none=True)
    efficiency = measured_efficiency().changed(changes) if changes else measured_efficiency()
    cost = COST_MODELS[name](gpu, efficiency, model.for_rank(tp))
    if isinstance(cost, RooflineCost) and mapping.cost is None:
        cost.remarks = _better(gpu, model, tp)
    return cost


def _mapping(gpu_value: object, place: str) -> _GpuMapping:
    """A GPU's value in full, that of a name alone too; UserError for keys and values of no GPU."""
    given = gpu_value if isinstance(gpu_value, Mapping) else {"name": gpu_value}
    if not isinstance(given.get("name", ""), str):
        raise unknown_name(place, gpu_value, [*GPUS, _INFINITE])
    return checked(_GpuMapping, given, place)


def _has_profile(mapping: _GpuMapping) -> bool:
    """Whether its times come from a profile: by name, or because one is given and nothing said."""
    return mapping.cost == _MEASURED or (mapping.cost is None and mapping.profile is not None)


def gpu_memory_bytes(gpu_value: object, place: str = "gpu") -> int | None:
    """Memory of the GPU that `gpu_value` means; None where it has no known limit.

    An infinite GPU, `memory: unlimited`, a profile of a card that is not in GPUS, or rates of one's
    own without memory.
    """
    mapping = _mapping(gpu_value, place)
    if _INFINITE in (mapping.name, mapping.cost):
        return None
    if mapping.memory is not None:
        return _memory_bytes(mapping.memory, place)
    return GPUS[mapping.name].memory_bytes if mapping.name in GPUS else None


def _memory_bytes(value: int | str, place: str) -> int | None:
    """None for `unlimited`."""
    return None if value == UNLIMITED else parse_bytes(value, f"{place}.memory", UNLIMITED)


def shipped_profile(gpu_name: str, model_name: str, tp: int) -> Path | None:
    """The file that ships for one of `tp` ranks of a model on a GPU; None where there is none."""
    return shipped_profiles().get((gpu_name, model_name, tp))


def price_files(gpu_value: object, model: ModelSpec, tp: int = 1) -> tuple[Path, ...]:
    """The files that ship and that `get_cost_model` of the same arguments reads."""
    mapping = _mapping(gpu_value, "gpu")
    if mapping.name == _INFINITE:
        return ()
    if not _has_profile(mapping):
        return (SHIPPED,)
    profile = None
    if mapping.profile is None:
        profile = shipped_profile(mapping.name or "", model.name, tp)
    of_link = (SHIPPED,) if tp > 1 else ()  # how ranks talk is told by no profile
    return (*((profile,) if profile else ()), *of_link)


def _infinite(mapping: _GpuMapping, place: str) -> InfiniteCost:
    """UserError where a mapping says more of an infinite GPU than that it is one."""
    given = mapping.model_dump(exclude_none=True, exclude_defaults=True)
    for key, value in given.items():
        if (key, value) not in (("name", _INFINITE), ("cost", _INFINITE)):
            says = "has no meaning for an infinite GPU; allowed: name: infinite alone"
            raise UserError(f"{place}.{key}", says)
    return InfiniteCost()


def _better(gpu: Gpu, model: ModelSpec, tp: int) -> tuple[str, ...]:
    """A hint where the GPU was named alone though its times were measured."""
    if GPUS.get(gpu.name) != gpu or shipped_profile(gpu.name, model.name, tp) is None:
        return ()
    return (f"a measured profile exists: gpu: {{name: {gpu.name}, cost: measured}}",)


def _measured(mapping: _GpuMapping, model: ModelSpec, tp: int, place: str) -> CostModel:
    """From the named file, or the shipped profile of this GPU, model and number of ranks."""
    path = shipped_profile(mapping.name or "", model.name, tp)
    if mapping.profile is not None:
        path = Path(mapping.profile)
    if path is None:
        known = ", ".join(
            f"{gpu} with {name} and tp {ranks}" for gpu, name, ranks in shipped_profiles()
        )
        raise UserError(
            f"{place}.cost",
            f"no profile of {model.name} with tp {tp} on {mapping.name} ships with hybridsim; "
            f"allowed: {known}, or a profile of your own as {place}.profile",
        )
    profile = read_profile(path)
    check_model(profile, model, tp, path.name, place)
    check_gpu(profile, mapping.name, path.name, place)
    check_no_rates(_rates_beside(mapping), place)
    return MeasuredCost(profile, _allreduce(mapping, model.for_rank(tp), place))


def _rates_beside(mapping: _GpuMapping) -> list[str]:
    """Keys of the mapping that say what a profile has measured, dotted."""
    rates = ("flops_per_s", "fp8_flops_per_s", "hbm_bytes_per_s")
    given = mapping.model_dump(exclude_none=True)
    return [key for key in rates if key in given] + [
        f"efficiency.{key}" for key in given["efficiency"] if key not in OF_LINK
    ]


def _allreduce(mapping: _GpuMapping, rank: ModelSpec, place: str) -> Allreduce | None:
    """What a profile of one rank lacks, from the GPU's link; None where there is one rank only."""
    if rank.tp == 1:
        return None
    link_bytes_per_s = mapping.link_bytes_per_s
    if link_bytes_per_s is None and mapping.name in GPUS:
        link_bytes_per_s = GPUS[mapping.name].link_bytes_per_s
    if link_bytes_per_s is None:
        raise UserError(f"{place}.link_bytes_per_s", f"missing; needed for tp {rank.tp}")
    changes = mapping.efficiency.model_dump(exclude_none=True)
    return allreduce_of(rank, link_bytes_per_s, measured_efficiency().changed(changes))


def _gpu(mapping: _GpuMapping, place: str) -> Gpu:
    """A known GPU with the given rates in place of its own, or one made of them."""
    rates: dict[str, Any] = mapping.model_dump(
        exclude={"name", "cost", "memory", "efficiency"}, exclude_none=True
    )
    if mapping.memory is not None:
        rates["memory_bytes"] = _memory_bytes(mapping.memory, place) or 0
    if mapping.name in GPUS:
        return replace(GPUS[mapping.name], **rates) if rates else GPUS[mapping.name]
    needed = {field.name for field in fields(Gpu)} & {"flops_per_s", "hbm_bytes_per_s"}
    if mapping.name is not None and not rates:
        raise unknown_name(place, mapping.name, [*GPUS, _INFINITE])
    for key in sorted(needed - rates.keys()):
        raise UserError(
            f"{place}.{key}", f"missing; needed for a GPU that is not one of {', '.join(GPUS)}"
        )
    return Gpu(name=mapping.name or "custom", **({"memory_bytes": 0} | rates))
