"""Whose step times to show: a model on a GPU, its roofline, and a measured profile if there is one.

From the command line's options, or from an experiment that names them.
"""

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from hybridsim.config import load_experiment
from hybridsim.cost.gpus import GPUS
from hybridsim.cost.load import OF_LINK, get_cost_model, shipped_profile
from hybridsim.cost.measured import MeasuredCost, profile_object
from hybridsim.cost.profiles import shipped_profiles
from hybridsim.cost.roofline import RooflineCost
from hybridsim.errors import UserError, unknown_name
from hybridsim.models import ModelSpec, get_model

_RATES = ("flops_per_s", "hbm_bytes_per_s")


@dataclass(frozen=True)
class Subject:
    """One rank of a model on a GPU.

    roofline: None where the GPU's peak rates are unknown. measured, data: the cost model of a
    profile and the profile's own JSON object; None where there is no profile.
    """

    gpu_name: str
    model: ModelSpec
    roofline: RooflineCost | None
    measured: MeasuredCost | None = None
    data: Mapping[str, Any] | None = None

    @property
    def name(self) -> str:
        """Of folders and titles: `h200-qwen3.5-0.8b`, `h200-qwen3-next-80b-a3b-tp4`."""
        tp = f"-tp{self.model.tp}" if self.model.tp > 1 else ""
        return re.sub(r"[^\w.-]+", "-", f"{self.gpu_name}-{self.model.name}{tp}")


@dataclass(frozen=True, slots=True)
class Wish:
    """The command line's options: an experiment with overrides, or a model with a GPU."""

    experiment: Path | None = None
    model: str | None = None
    gpu: str | None = None
    tp: int | None = None
    profile: Path | None = None
    overrides: tuple[str, ...] = ()


def find_subjects(wish: Wish) -> list[Subject]:
    """What is wished for; UserError where the options contradict each other or say too little."""
    if wish.experiment is not None:
        given = {"--model": wish.model, "--gpu": wish.gpu, "--tp": wish.tp,
                 "--profile": wish.profile}  # fmt: skip
        for option, value in given.items():
            if value is not None:
                raise UserError(
                    option, f"is given beside an experiment; allowed: --set {option[2:]}=..."
                )
        return _of_experiment(wish.experiment, wish.overrides)
    if wish.overrides:
        raise UserError("--set", "has no meaning without an experiment; allowed: --model and --gpu")
    if wish.model is None:
        raise UserError("--model", "is missing; allowed: a model, or an experiment file")
    if wish.gpu is None and wish.profile is None:
        raise UserError("--gpu", f"is missing; allowed: {', '.join(GPUS)}, rates, or a --profile")
    try:
        gpu = "custom" if wish.gpu is None else yaml.safe_load(wish.gpu)
    except yaml.YAMLError:
        raise UserError("--gpu", f"{wish.gpu!r} is neither a name nor a YAML mapping") from None
    tp = 1 if wish.tp is None else wish.tp
    return [make_subject(gpu, get_model(wish.model), tp, wish.profile, "--gpu")]


def shipped() -> Iterator[tuple[str, Mapping[str, Any]]]:
    """GPU name and JSON object of each profile that ships."""
    for path in sorted(set(shipped_profiles().values())):
        yield path.name.split(".", 1)[0], json.loads(path.read_text())


def _of_experiment(path: Path, overrides: Sequence[str]) -> list[Subject]:
    """Every GPU, model and tp that the experiment's runs have; UserError where it has no GPU."""
    found: dict[str, Subject] = {}
    for run in load_experiment(path, overrides).runs:
        config = run.config
        if config.gpu is None:
            raise UserError(
                "gpu", f"is missing in {path}; allowed: --set gpu=h200, or --model and --gpu"
            )
        key = json.dumps([config.gpu, config.model, config.tp], sort_keys=True, default=str)
        if key not in found:
            found[key] = make_subject(config.gpu, get_model(config.model), config.tp)
    return list(found.values())


def make_subject(
    gpu_value: object, model: ModelSpec, tp: int, profile: Path | None = None, place: str = "gpu"
) -> Subject:
    """UserError for unknown GPUs, and for a profile that is of something else.

    profile: a file in place of the GPU's own or shipped one.
    """
    given = dict(gpu_value) if isinstance(gpu_value, Mapping) else {"name": gpu_value}
    name = given.get("name", "custom")
    if not isinstance(name, str):
        raise unknown_name(place, name, list(GPUS))
    if "infinite" in (name, given.get("cost")):
        raise UserError(place, f"'infinite' takes no time; allowed: {', '.join(GPUS)}, or rates")
    if profile is not None:
        given["profile"] = str(profile)
    if "cost" in given:
        get_cost_model(given, model, tp, place)  # refuses what an experiment refuses
    chosen = given.pop("profile", None)
    given.pop("cost", None)
    path = shipped_profile(name, model.name, tp) if chosen is None else Path(str(chosen))
    measured = data = None
    if path is not None:
        source = {"name": name, "cost": "measured", "profile": str(path)}
        cost = get_cost_model(source | _link_of(given), model, tp, place)
        assert isinstance(cost, MeasuredCost)
        measured, data = cost, profile_object(path)
    roofline = _roofline(given, model, tp, path, place)
    return Subject(name, model.for_rank(tp), roofline, measured, data)


def _link_of(given: Mapping[str, Any]) -> dict[str, Any]:
    """What of a GPU's mapping stands beside a profile: how ranks talk to one another."""
    link = {key: given[key] for key in ("link_bytes_per_s",) if key in given}
    shares = given.get("efficiency")
    if isinstance(shares, Mapping):
        link["efficiency"] = {key: shares[key] for key in OF_LINK & shares.keys()}
    return link


def _roofline(
    given: dict[str, Any], model: ModelSpec, tp: int, path: Path | None, place: str
) -> RooflineCost | None:
    """None for a profile of a card whose peaks are not known."""
    known = given.get("name") in GPUS or any(key in given for key in _RATES)
    if path is not None and not known:
        return None
    cost = get_cost_model(given | {"cost": "roofline"}, model, tp, place)
    assert isinstance(cost, RooflineCost)
    return cost
