"""Cases of the recurrence family and of the convolution before it."""

from collections.abc import Iterator

import torch

from hybridsim.kernels import conv
from hybridsim.kernels.bench.case import Case, MakeCall, permutation, random_normal
from hybridsim.kernels.bench.timing import Call, rotations
from hybridsim.kernels.plan import SequenceTask, make_plan
from hybridsim.kernels.recurrence import GATED_DELTA, RULES, Rule, decode, prefill
from hybridsim.kernels.recurrence.chunked import CHUNK_SIZE

Inputs = tuple[torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor | None, torch.Tensor | None]
BF16 = torch.bfloat16


def draw(rule: Rule, tokens: int, heads: int, key_size: int, value_size: int, seed: int) -> Inputs:
    """Unit queries and keys, decays of a trained model's order, all as the models make them."""
    q, k = (
        torch.nn.functional.normalize(
            random_normal((tokens, heads, key_size), seed + i, torch.float32), dim=-1
        ).to(BF16)
        for i in range(2)
    )
    v = random_normal((tokens, heads, value_size), seed + 2, BF16)
    log_decay = None
    if rule.decay != "none":
        shape = (tokens, heads) if rule.decay == "head" else (tokens, heads, key_size)
        noise = random_normal(shape, seed + 3, torch.float32)
        log_decay = torch.nn.functional.logsigmoid(noise + 2) / 4
    strength = None
    if rule.has_strength:
        strength = torch.sigmoid(random_normal((tokens, heads), seed + 4, torch.float32)).to(BF16)
    return q, k, v, log_decay, strength


def _ours_prefill(rule: Rule, tokens: int, heads: int, key_size: int, value_size: int) -> MakeCall:
    plan = make_plan([SequenceTask(tokens, 0, 1)], CHUNK_SIZE, "cuda")

    def make(seed: int) -> Call:
        x = draw(rule, tokens, heads, key_size, value_size, seed)
        states = torch.zeros(2, heads, key_size, value_size, device="cuda")
        return lambda: prefill(rule, *x, states, plan, scale=key_size**-0.5)

    return make


def _fla_prefill(rule: Rule, tokens: int, heads: int, key_size: int, value_size: int) -> MakeCall:
    from fla.ops.gated_delta_rule import chunk_gated_delta_rule
    from fla.ops.kda import chunk_kda

    function = {"gated_delta": chunk_gated_delta_rule, "kda": chunk_kda}[rule.name]

    def make(seed: int) -> Call:
        x = draw(rule, tokens, heads, key_size, value_size, seed)
        q, k, v, g, beta = (None if y is None else y.unsqueeze(0) for y in x)
        zero = torch.zeros(1, heads, key_size, value_size, device="cuda")

        def call() -> torch.Tensor:
            with torch.no_grad():
                out, _ = function(
                    q, k, v, g, beta, scale=key_size**-0.5, initial_state=zero,
                    output_final_state=True,
                )  # fmt: skip
            return out[0]

        return call

    return make


def chunked_flops(rule: Rule, tokens: int, heads: int, key_size: int, value_size: int) -> int:
    """Operations of the chunk form: products inside chunks, then reads and writes of the state."""
    inside = CHUNK_SIZE * (key_size + value_size)
    state = 2 * key_size * value_size
    if rule.is_delta:
        inside += CHUNK_SIZE * (2 * key_size + value_size)
        state += key_size * value_size
    return 2 * tokens * heads * (inside + state)


def prefill_cases(quick: bool, with_rivals: bool) -> Iterator[Case]:
    """Chunked prefill of one sequence: the gated delta rule at all lengths, the others at 8k."""
    lengths = (1024, 8192) if quick else (1024, 2048, 4096, 8192, 16384, 32768)
    for rule in RULES.values():
        value_size = 64 if rule.name == "ssd" else 128
        for tokens in lengths if rule is GATED_DELTA else (8192,):
            shape = (tokens, 16, 128, value_size)
            versions = {"ours": _ours_prefill(rule, *shape)}
            if with_rivals and rule.name in ("gated_delta", "kda"):
                versions["fla"] = _fla_prefill(rule, *shape)
            decay = {"none": 0, "head": 1, "channel": 128}[rule.decay]
            row_bytes = 2 * (2 * 128 + 2 * value_size) + 4 * decay + 2 * rule.has_strength
            num_bytes = tokens * 16 * row_bytes + 2 * 16 * 128 * value_size * 4
            yield Case(
                f"prefill {rule.name}", {"tokens": tokens, "heads": 16}, num_bytes,
                chunked_flops(rule, *shape), versions, rotations(num_bytes),
                ("fla", 1.15) if rule is GATED_DELTA else None, tolerance=3e-2,
            )  # fmt: skip


def decode_cases(quick: bool, with_rivals: bool) -> Iterator[Case]:
    """Recurrent decode in place, fp32 and bf16 states, scattered slots."""
    batches = (1, 64) if quick else (1, 8, 32, 64, 128, 256, 512)
    for rule, state_dtype in ((GATED_DELTA, torch.float32), (GATED_DELTA, BF16),
                              (RULES["kda"], torch.float32)):  # fmt: skip
        for batch in batches:
            num_bytes = batch * 16 * (2 * 128 * 128 * state_dtype.itemsize + 2 * 4 * 128)
            name = f"decode {rule.name} {str(state_dtype).removeprefix('torch.')} state"
            target = ("floor", 0.8) if batch >= 64 and rule is GATED_DELTA else None
            versions = {"ours": _decode_maker(rule, batch, state_dtype)}
            if with_rivals and rule is GATED_DELTA and state_dtype == torch.float32:
                versions["fla"] = _fla_decode(batch)
            yield Case(name, {"batch": batch, "heads": 16}, num_bytes, 0, versions,
                       rotations(num_bytes), target)  # fmt: skip


def _fla_decode(batch: int) -> MakeCall:
    """One token a request; the rival has no slots: states in, states out."""
    from fla.ops.gated_delta_rule import fused_recurrent_gated_delta_rule

    def make(seed: int) -> Call:
        x = draw(GATED_DELTA, batch, 16, 128, 128, seed)
        q, k, v, g, beta = (None if y is None else y.unsqueeze(1) for y in x)
        pool = random_normal((batch + 3, 16, 128, 128), seed + 9, torch.float32)
        states = pool[permutation(batch + 3, seed + 7)[:batch].long()]

        def call() -> torch.Tensor:
            with torch.no_grad():
                out, _ = fused_recurrent_gated_delta_rule(
                    q, k, v, g, beta=beta, scale=128**-0.5, initial_state=states,
                    output_final_state=True,
                )  # fmt: skip
            return out[:, 0]

        return call

    return make


def _decode_maker(rule: Rule, batch: int, state_dtype: torch.dtype) -> MakeCall:
    def make(seed: int) -> Call:
        x = draw(rule, batch, 16, 128, 128, seed)
        states = random_normal((batch + 3, 16, 128, 128), seed + 9, state_dtype)
        slots = permutation(batch + 3, seed + 7)[:batch]
        index = torch.arange(batch, device="cuda", dtype=torch.int32)
        return lambda: decode(rule, *x, states, slots, index, scale=128**-0.5)

    return make


def conv_cases(quick: bool, with_rivals: bool) -> Iterator[Case]:
    """The convolution of qwen3.5-0.8b: 6144 channels, width 4."""
    for tokens in (2048,) if quick else (2048, 16384):
        num_bytes = 2 * tokens * 6144 * 2
        make = _conv_maker(tokens, is_decode=False)
        yield Case("conv prefill", {"tokens": tokens}, num_bytes, 0, {"ours": make},
                   rotations(num_bytes))  # fmt: skip
    for batch in (64,) if quick else (1, 64, 256):
        num_bytes = 8 * batch * 6144 * 2
        make = _conv_maker(batch, is_decode=True)
        yield Case("conv decode", {"batch": batch}, num_bytes, 0, {"ours": make},
                   rotations(num_bytes))  # fmt: skip


def _conv_maker(tokens: int, is_decode: bool) -> MakeCall:
    plan = make_plan([SequenceTask(tokens, 0, 0)], CHUNK_SIZE, "cuda")
    weight = random_normal((6144, 4), 0, BF16)

    def make(seed: int) -> Call:
        x = random_normal((tokens, 6144), seed, BF16)
        states = random_normal((tokens if is_decode else 1, 3, 6144), seed + 1, BF16)
        slots = permutation(tokens, seed + 7)
        if is_decode:
            return lambda: conv.decode(x, weight, None, states, slots)
        return lambda: conv.prefill(x, weight, None, states, plan)

    return make
