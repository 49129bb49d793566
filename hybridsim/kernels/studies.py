"""`python -m hybridsim.kernels.studies --out studies.json`: the handbook's questions, measured.

chunk_size: why about 64, see `chunk_study`. crossover: from how many tokens on the chunked form is
faster than the recurrent one. drift: what storing the state in fewer bits does over 64k tokens.
copy_on_write and tail_replay: see `reuse_studies`.
"""

import argparse
from collections.abc import Callable
from pathlib import Path

import torch

from hybridsim.kernels.bench.recurrence_cases import Inputs, draw
from hybridsim.kernels.bench.timing import Call, time_graph
from hybridsim.kernels.chunk_study import chunk_size
from hybridsim.kernels.console import say
from hybridsim.kernels.machine import check_out, describe_machine, require_gpu, save_json
from hybridsim.kernels.plan import SequenceTask, make_plan
from hybridsim.kernels.recurrence import GATED_DELTA, prefill, run_tokens
from hybridsim.kernels.reuse_studies import copy_on_write, tail_replay
from hybridsim.terminal import errors_in_one_line

Row = dict[str, object]
Through = Callable[[torch.Tensor], torch.Tensor]
HEADS, SIZE = 16, 128
SCALE = SIZE**-0.5


def _both_forms(sequences: int, tokens: int) -> tuple[Call, Call]:
    """The recurrent and the chunked form on the same inputs, states updated in place."""
    q, k, v, decay, strength = draw(GATED_DELTA, sequences * tokens, HEADS, SIZE, SIZE, 0)
    states = torch.zeros(sequences, HEADS, SIZE, SIZE, device="cuda")
    slots = torch.arange(sequences, device="cuda", dtype=torch.int32)
    starts, lengths = slots * tokens, torch.full_like(slots, tokens)
    save = torch.full((sequences, tokens), -1, device="cuda", dtype=torch.int32)
    save[:, -1] = slots
    saves = save.view(-1)
    plan = make_plan([SequenceTask(tokens, n, n) for n in range(sequences)], 64, "cuda")
    return (
        lambda: run_tokens(
            GATED_DELTA, q, k, v, decay, strength, states, starts, lengths, slots, saves, SCALE
        ),
        lambda: prefill(GATED_DELTA, q, k, v, decay, strength, states, plan, SCALE),
    )


def crossover() -> list[Row]:
    """A layer's recurrent and chunked form over the same tokens, for 1 and 16 sequences."""
    rows: list[Row] = []
    for sequences in (1, 16):
        for tokens in (1, 2, 4, 8, 12, 16, 24, 32, 48, 64, 128, 256):
            recurrent, chunked = (time_graph([call]) for call in _both_forms(sequences, tokens))
            rows.append({
                "sequences": sequences, "tokens": tokens,
                "recurrent_s": recurrent.median_s, "chunked_s": chunked.median_s,
            })  # fmt: skip
    return rows


def _to_int8(state: torch.Tensor) -> torch.Tensor:
    """Through int8 and back, one scale a row of the state."""
    scale = state.abs().amax(dim=-1, keepdim=True).clamp_min(1e-30) / 127
    return (state / scale).round().clamp(-127, 127) * scale


ROUND: dict[str, Through] = {
    "float32": lambda state: state,
    "bfloat16": lambda state: state.to(torch.bfloat16).float(),
    "float16": lambda state: state.to(torch.float16).float(),
    "int8": _to_int8,
}


def _exact(x: Inputs, marks: list[int]) -> tuple[torch.Tensor, dict[int, torch.Tensor]]:
    """Outputs and the states at `marks` in float64, one token after another."""
    q, k, v, log_decay, strength = (y.double() for y in x if y is not None)
    decay = log_decay.exp()
    state = torch.zeros(v.shape[1], SIZE, SIZE, dtype=torch.float64, device="cuda")
    out, kept = torch.empty_like(v), {}
    for t in range(v.shape[0]):
        state.mul_(decay[t, :, None, None])
        written = strength[t, :, None] * (v[t] - torch.einsum("hk,hkv->hv", k[t], state))
        state.baddbmm_(k[t][:, :, None], written[:, None, :])
        torch.bmm(q[t][:, None, :], state, out=out[t][:, None, :])
        if t + 1 in marks:
            kept[t + 1] = state.clone()
    return out * SCALE, kept


def _relative(actual: torch.Tensor, expected: torch.Tensor) -> float:
    return float((actual.double() - expected).norm() / expected.norm())


def _stored(x: Inputs, every: int, through: Through, marks: list[int]) -> list[torch.Tensor]:
    """Outputs `[T, H, V]`, then the states at `marks`, when the state is stored every so often."""
    q, k, v, decay, strength = x
    assert decay is not None
    assert strength is not None
    state = torch.zeros(1, v.shape[1], SIZE, SIZE, device="cuda")
    zero = torch.zeros(1, dtype=torch.int32, device="cuda")
    length = zero + every
    save = torch.full((every,), -1, dtype=torch.int32, device="cuda")
    save[-1] = 0
    out, kept = torch.empty_like(v), []
    for at in range(0, v.shape[0], every):
        now = slice(at, at + every)
        run_tokens(
            GATED_DELTA, q[now], k[now], v[now], decay[now], strength[now], state,
            zero, length, zero, save, SCALE, out=out[now],
        )  # fmt: skip
        state = through(state)
        if at + every in marks:
            kept.append(state[0].clone())
    return [out, *kept]


def drift(num_tokens: int = 65536, heads: int = 2) -> list[Row]:
    """Errors against float64 when the state passes through a storage type every so many tokens.

    every 1: the stored state of decode steps. every 1024: a checkpoint restored. The rate of decay
    is drawn from 0.0001 to 1 a token, evenly in its logarithm. Errors of outputs are those of the
    last 1024 tokens.
    """
    q, k, v, _, strength = draw(GATED_DELTA, num_tokens, heads, SIZE, SIZE, 0)
    rate = (torch.rand(num_tokens, heads, device="cuda", generator=_seeded()) * 9.2 - 9.2).exp()
    x = (q, k, v, -rate, strength)
    marks = [1024, 4096, 16384, 65536]
    exact, states_at = _exact(x, marks)
    rows: list[Row] = []
    for every in (1, 1024):
        for name, through in ROUND.items():
            out, *states = _stored(x, every, through, marks)
            for mark, state in zip(marks, states, strict=True):
                recent = slice(mark - 1024, mark)
                rows.append({
                    "stored_as": name, "every": every, "tokens": mark,
                    "state_error": _relative(state, states_at[mark]),
                    "output_error": _relative(out[recent], exact[recent]),
                })  # fmt: skip
    return rows


def _seeded() -> torch.Generator:
    return torch.Generator(device="cuda").manual_seed(0)


STUDIES: dict[str, Callable[[], list[Row]]] = {
    "chunk_size": chunk_size,
    "crossover": crossover,
    "drift": drift,
    "copy_on_write": copy_on_write,
    "tail_replay": tail_replay,
}


def study(options: argparse.Namespace) -> None:
    """Run the studies that the options name; UserError without a GPU or for a wrong --out."""
    require_gpu()
    check_out(options.out)
    results: dict[str, object] = {"machine": describe_machine(options.commit)}
    for name in options.only:
        results[name] = rows = STUDIES[name]()
        for row in rows:
            cells = (
                f"{value:.3e}" if isinstance(value, float) else str(value) for value in row.values()
            )
            say(f"{name} {' '.join(cells)}")
        save_json(options.out, results)  # after each study: a run that is stopped keeps the others


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m hybridsim.kernels.studies")
    parser.add_argument("--out", type=Path, required=True, help="JSON file to write")
    parser.add_argument("--only", nargs="*", choices=list(STUDIES), default=list(STUDIES))
    parser.add_argument("--commit", default="", help="commit of this tree, where git cannot tell")
    options = parser.parse_args()
    with errors_in_one_line():
        study(options)


if __name__ == "__main__":
    main()
