"""Step times from a measured profile: the parts of a step looked up and added.

A profile is a JSON file written by `python -m hybridsim.kernels.calibrate` on the GPU in question.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from math import sqrt
from pathlib import Path
from typing import Any

from hybridsim.cost.allreduce import Allreduce
from hybridsim.cost.base import PrefillChunk
from hybridsim.cost.file_shapes import check_profile
from hybridsim.cost.monotone import rising_increments, rising_times
from hybridsim.cost.side_by_side import attentions_s, scans_s, whole_blocks
from hybridsim.cost.tables import Table, read_table
from hybridsim.errors import UserError
from hybridsim.files import read_json

FORMAT = "hybridsim-profile-1"
REQUIRED = (  # parts that every profile has
    "dense", "head", "recurrent_prefill", "recurrent_decode", "full_prefill", "full_prefill_of_4",
    "full_decode", "copy",
)  # fmt: skip
EXPERTS = "experts"  # a part of models that have them


@dataclass(frozen=True, slots=True)
class Fit:
    """What the parts leave out, fitted on whole steps: step = overhead_s + scale * sum of parts.

    All-reduces between ranks are added after it.

    error: root mean square of the relative error that stays, on the steps of the fit.
    """

    overhead_s: float = 0.0
    scale: float = 1.0
    error: float = 0.0


@dataclass(frozen=True, slots=True)
class Profile:
    """A profile read and checked. `machine`: names and versions of what it was measured on.

    state_bytes: one request's states and convolution states, all layers.
    """

    model: str
    tp: int
    machine: Mapping[str, str]
    tables: Mapping[str, Table]
    state_bytes: float
    fit: Fit


def read_profile(path: Path) -> Profile:
    """UserError where the file is missing, is no profile, or lacks parts."""
    return parse_profile(profile_object(path), path.name)


def profile_object(path: Path) -> dict[str, Any]:
    """A profile's JSON object, not looked into; UserError where the file is of another format."""
    data = read_json(path)
    if not isinstance(data, dict) or data.get("format") != FORMAT:
        raise UserError(path.name, f"is not a cost profile; allowed: a file of format {FORMAT}")
    return data


def parse_profile(data: Mapping[str, Any], place: str) -> Profile:
    """A profile from its JSON object."""
    operators = data.get("operators", {})
    if not isinstance(operators, dict):
        raise UserError(f"{place}.operators", f"{operators!r:.60} is not a mapping of parts")
    lacking = [part for part in REQUIRED if part not in operators]
    if lacking:
        raise UserError(f"{place}.operators", f"lacks {', '.join(lacking)}")
    needed = ("model", "tp", "machine", "state_bytes")
    for key in needed:
        if key not in data:
            raise UserError(f"{place}.{key}", "is missing")
    check_profile(data, place)
    tables = {}
    for part in filter(operators.__contains__, (*REQUIRED, EXPERTS)):
        smooth = rising_increments if part == "recurrent_prefill" else rising_times
        tables[part] = read_table(part, operators[part], f"{place}.operators", smooth)
    fit = Fit(**data.get("fit", {}))
    if fit.overhead_s + fit.scale * tables["dense"].at(1) <= 0:
        raise UserError(
            f"{place}.fit.overhead_s", f"{fit.overhead_s} makes the smallest step take no time"
        )
    return Profile(
        data["model"], data["tp"], data["machine"], tables, float(data["state_bytes"]), fit
    )


@dataclass
class MeasuredCost:
    """A CostModel that looks times up in a profile of one rank of one model on one GPU.

    allreduce: what the ranks tell one another, which one GPU cannot measure; None for one rank.
    `extrapolated` counts, per part, the lookups outside the measured grid.
    """

    profile: Profile
    allreduce: Allreduce | None = None
    extrapolated: Counter[str] = field(default_factory=Counter)

    def step_s(
        self,
        chunks: Sequence[PrefillChunk],
        num_decodes: int,
        decode_context_tokens: int,
        copied_bytes: int = 0,
    ) -> float:
        """See CostModel. A step with nothing to do takes no time."""
        parts = self.parts_s(chunks, num_decodes, decode_context_tokens, copied_bytes)
        if not parts:
            return 0.0
        tokens = sum(chunk.num_new_tokens for chunk in chunks) + num_decodes
        measured_s = self.profile.fit.overhead_s + self.profile.fit.scale * sum(parts.values())
        return measured_s + self._allreduce_s(tokens)

    def error_s(
        self,
        chunks: Sequence[PrefillChunk],
        num_decodes: int,
        decode_context_tokens: int,
        copied_bytes: int = 0,
    ) -> float:
        """Standard error of step_s: spreads of the parts and the fit's own error, independent."""
        parts = self.parts_s(chunks, num_decodes, decode_context_tokens, copied_bytes)
        tables = self.profile.tables
        squares = sum((seconds * tables[part].spread) ** 2 for part, seconds in parts.items())
        return sqrt(squares + (self.profile.fit.error * sum(parts.values())) ** 2)

    def parts_s(
        self,
        chunks: Sequence[PrefillChunk],
        num_decodes: int,
        decode_context_tokens: int,
        copied_bytes: int = 0,
    ) -> dict[str, float]:
        """Seconds of one step by part, before the fit's correction."""
        chunks = [chunk for chunk in chunks if chunk.num_new_tokens > 0]
        tokens = sum(chunk.num_new_tokens for chunk in chunks) + num_decodes
        parts: dict[str, float] = {}
        if tokens:
            parts["dense"] = self._at("dense", tokens)
            parts["head"] = self._at("head", len(chunks) + num_decodes)
            if EXPERTS in self.profile.tables:
                parts[EXPERTS] = self._at(EXPERTS, tokens)
        if chunks:
            parts |= self._prefill_parts_s(chunks)
        if num_decodes:
            parts |= self._decode_parts_s(num_decodes, decode_context_tokens / num_decodes)
        if copied_bytes:
            parts["copy"] = self._at("copy", copied_bytes / self.profile.state_bytes)
        return parts

    def _prefill_parts_s(self, chunks: Sequence[PrefillChunk]) -> dict[str, float]:
        """Recurrence and attention of the chunks."""
        tables, lengths = self.profile.tables, [whole_blocks(x.num_new_tokens) for x in chunks]
        self._note("recurrent_prefill", max(lengths), len(lengths))
        for part in ("full_prefill", "full_prefill_of_4")[: len(chunks)]:  # of one: the first only
            for chunk, length in zip(chunks, lengths, strict=True):
                self._note(part, length, chunk.num_prefix_tokens)
        alone, four = tables["full_prefill"], tables["full_prefill_of_4"]
        return {
            "recurrent_prefill": scans_s(tables["recurrent_prefill"], lengths),
            "full_prefill": attentions_s(alone, four, chunks),
        }

    def _decode_parts_s(self, num_decodes: int, context_tokens: float) -> dict[str, float]:
        """Recurrence and attention of requests with so many tokens in context in the mean."""
        self._note("full_decode", num_decodes, context_tokens)
        return {
            "recurrent_decode": self._at("recurrent_decode", num_decodes),
            "full_decode": self.profile.tables["full_decode"].row(num_decodes).at(context_tokens),
        }

    def decode_steps_s(self, num_steps: int, num_decodes: int, decode_context_tokens: int) -> float:
        """See CostModel: only the attention part depends on the context, and piecewise linearly."""
        if num_steps <= 0 or num_decodes <= 0:
            return 0.0
        context = decode_context_tokens / num_decodes
        parts = self.parts_s((), num_decodes, decode_context_tokens)
        fixed = sum(seconds for part, seconds in parts.items() if part != "full_decode")
        self._note("full_decode", num_decodes, context + num_steps - 1)
        row = self.profile.tables["full_decode"].row(num_decodes)
        fit = self.profile.fit
        varying = row.sum_at(context, num_steps)
        fixed_s = fit.overhead_s + fit.scale * fixed + self._allreduce_s(num_decodes)
        return num_steps * fixed_s + fit.scale * varying

    def notes(self) -> list[str]:
        """Sentences for a run's record: where the profile is from, how sure it is, where it was
        left."""
        machine = self.profile.machine
        notes = [f"step times measured on {machine.get('gpu')} on {machine.get('date')}"]
        if self.profile.fit.error:
            notes.append(
                "a step's time is sure to about "
                f"{self.profile.fit.error:.1%} (root mean square over the profile's whole steps)"
            )
        if self.allreduce is not None:
            notes.append(self.allreduce.note())
        for part, count in sorted(self.extrapolated.items()):
            notes.append(f"{count} lookups of {part} lay outside the measured grid")
        return notes

    def _allreduce_s(self, num_tokens: int) -> float:
        return 0.0 if self.allreduce is None else self.allreduce.step_s(num_tokens)

    def _note(self, part: str, x: float, y: float | None = None) -> None:
        if not self.profile.tables[part].covers(x, y):
            self.extrapolated[part] += 1

    def _at(self, part: str, x: float) -> float:
        self._note(part, x)
        return self.profile.tables[part].at(x)
