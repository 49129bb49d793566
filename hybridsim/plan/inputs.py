"""What a plan is for: the trace and model of the command line or an experiment, on one rank."""

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from hybridsim.analysis.inputs import Subject, Wish, load_subject
from hybridsim.errors import UserError
from hybridsim.models import get_model
from hybridsim.request import Request


@dataclass(frozen=True, slots=True)
class Inputs:
    """`base`: `trace`, `model` and `tp` as an experiment has them."""

    path: Path
    wish: Wish
    subject: Subject
    base: dict[str, Any]

    def requests_of_seed(self, seed: int) -> list[Request]:
        """The trace drawn again. Where nothing is random it comes out the same."""
        seeded = replace(self.wish, overrides=(*self.wish.overrides, f"seed={seed}"))
        return load_subject(self.path, seeded).trace.requests


def load_inputs(path: Path, wish: Wish, tp: int) -> Inputs:
    """Read and check everything; UserError names file, line or option."""
    if tp < 1:
        raise UserError("--tp", f"{tp}; allowed: an integer >= 1")
    subject = load_subject(path, wish)
    base = _base(subject, tp)
    model = get_model(base["model"]).for_rank(base["tp"])
    if not model.state_bytes or not model.kv_bytes_per_token:
        raise UserError(
            "--model", f"{model.name} is no hybrid; allowed: a model with KV and states"
        )
    rules = replace(
        subject.rules, kv_bytes_per_token=model.kv_bytes_per_token, state_bytes=model.state_bytes
    )
    return Inputs(path, wish, replace(subject, model=model, rules=rules), base)


def _base(subject: Subject, tp: int) -> dict[str, Any]:
    config = subject.config
    return {
        "trace": config.trace.model_dump(exclude_none=True),
        "model": config.model,
        "tp": tp if tp > 1 else config.tp,
        "seed": config.seed,
    }
