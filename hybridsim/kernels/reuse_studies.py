"""What it costs to reuse a state: copying it, computing the gap again, keeping it for every draft.

copy_on_write: time of copying a request's states against prefilling tokens again. tail_replay: one
state a draft against recorded inputs and a second pass over them.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial

import torch

from hybridsim.kernels.bench.case import permutation, random_normal
from hybridsim.kernels.bench.recurrence_cases import Inputs, draw
from hybridsim.kernels.bench.timing import Call, rotations, time_graph
from hybridsim.kernels.model.batch import StepShape
from hybridsim.kernels.model.model import HybridModel
from hybridsim.kernels.recurrence import GATED_DELTA, run_tokens
from hybridsim.models import CATALOGUE

Row = dict[str, object]
HEADS, SIZE = 16, 128
STATE_BYTES = HEADS * SIZE * SIZE * 4
MODEL = "qwen3.5-0.8b"
GAPS = (0, 64, 128, 256, 512, 1024)


def slope(x: Sequence[float], y: Sequence[float]) -> float:
    """Least-squares slope of y over x."""
    mean_x, mean_y = sum(x) / len(x), sum(y) / len(y)
    covariance = sum((a - mean_x) * (b - mean_y) for a, b in zip(x, y, strict=True))
    return covariance / sum((a - mean_x) ** 2 for a in x)


def copy_on_write() -> list[Row]:
    """A request continues from a checkpoint `gap` tokens before the end of its 8192-token prefix.

    Steps of the whole model with `new` tokens of its own and the gap's; the slope over the gap is
    what a token more costs in a step that runs anyway. Against it, copying its states (recurrent
    and convolution, all layers) into a slot of its own. break_even_tokens = copy_s / slope.
    """
    model = HybridModel(CATALOGUE[MODEL](), num_slots=64, num_pages=2048)
    pairs = permutation(64, 0).view(32, 2)
    copies = [partial(model.copy_states, *pair.clone().split(1)) for pair in pairs]
    copy_s = time_graph(copies).median_s
    rows: list[Row] = []
    for new in (64, 512, 4096):
        seconds = []
        for gap in GAPS:
            batch = model.batch(StepShape(((new + gap, 8192 - gap),), ()), seed=0)
            seconds.append(time_graph([partial(model.step, batch)]).median_s)
        token_s = slope(GAPS, seconds)
        rows += [
            {"new_tokens": new, "gap_tokens": gap, "step_s": step_s, "copy_s": copy_s,
             "token_s": token_s, "break_even_tokens": copy_s / token_s}
            for gap, step_s in zip(GAPS, seconds, strict=True)
        ]  # fmt: skip
    return rows


@dataclass(frozen=True, slots=True, eq=False)
class Drafts:
    """One layer's inputs of `batch` requests with `num_drafts` drafts each, and tables for them.

    states: a slot for each request, then one for each draft; starts, lengths, slots int32
    `[batch]`. The tables are made once a step for all layers and are not part of what is timed.
    """

    x: Inputs
    states: torch.Tensor
    starts: torch.Tensor
    lengths: torch.Tensor
    slots: torch.Tensor
    num_drafts: int

    @staticmethod
    def draw(batch: int, num_drafts: int, seed: int) -> "Drafts":
        x = draw(GATED_DELTA, batch * num_drafts, HEADS, SIZE, SIZE, seed)
        shape = (batch * (num_drafts + 1), HEADS, SIZE, SIZE)
        index = torch.arange(batch, device="cuda", dtype=torch.int32)
        return Drafts(
            x, random_normal(shape, seed + 9, torch.float32), index * num_drafts,
            torch.full_like(index, num_drafts), index, num_drafts,
        )  # fmt: skip

    def keep_all(self) -> Call:
        """Outputs of all drafts, and a state kept after every one."""
        batch = self.slots.shape[0]
        tokens = batch * self.num_drafts
        saves = torch.arange(batch, batch + tokens, device="cuda", dtype=torch.int32)
        return lambda: self._run(True, self.lengths, saves)

    def keep_none(self) -> Call:
        """Outputs of all drafts; the states stay as they were."""
        saves = torch.full((self.x[0].shape[0],), -1, device="cuda", dtype=torch.int32)
        return lambda: self._run(True, self.lengths, saves)

    def replay(self, accepted: int) -> Call:
        """The states moved over the first `accepted` recorded drafts, in place."""
        saves = torch.full_like(self.slots, -1).repeat_interleave(self.num_drafts)
        saves[self.starts.long() + accepted - 1] = self.slots
        lengths = torch.full_like(self.lengths, accepted)
        return lambda: self._run(False, lengths, saves)

    def _run(self, with_outputs: bool, lengths: torch.Tensor, saves: torch.Tensor) -> object:
        q, k, v, decay, strength = self.x
        return run_tokens(
            GATED_DELTA, q if with_outputs else None, k, v, decay, strength, self.states,
            self.starts, lengths, self.slots, saves, SIZE**-0.5, all_read=True,
        )  # fmt: skip


def tail_replay() -> list[Row]:
    """Per layer: verify with a state a draft, against verify without and replay of those accepted.

    kept_bytes and recorded_bytes: what a request holds from verify to acceptance.
    """
    rows: list[Row] = []
    # k, v and strength in bfloat16, log decay in float32.
    recorded_bytes = HEADS * (2 * 2 * SIZE + 2 + 4)
    for batch in (1, 4, 16, 64):
        for drafts in (2, 4, 8):
            count = rotations(batch * (drafts + 1) * STATE_BYTES)
            sets = [Drafts.draw(batch, drafts, 100 * i) for i in range(count)]
            row: Row = {"batch": batch, "drafts": drafts}
            calls: dict[str, Callable[[Drafts], Call]] = {
                "keep_all_s": lambda x: x.keep_all(),
                "keep_none_s": lambda x: x.keep_none(),
                "replay_half_s": lambda x: x.replay(x.num_drafts // 2),
                "replay_all_s": lambda x: x.replay(x.num_drafts),
            }
            for name, make in calls.items():
                row[name] = time_graph([make(x) for x in sets]).median_s
            row["kept_bytes"] = drafts * STATE_BYTES
            row["recorded_bytes"] = drafts * recorded_bytes
            rows.append(row)
            del sets
            torch.cuda.empty_cache()
    return rows
