"""Random inputs of the recurrence family and a measure of error."""

from dataclasses import dataclass

import torch

from hybridsim.kernels.recurrence.rules import GATED_DELTA, Rule


@dataclass
class Inputs:
    """q, k `[T, Hk, K]`, v `[T, H, V]`, decay and strength as the rule wants them."""

    q: torch.Tensor
    k: torch.Tensor
    v: torch.Tensor
    log_decay: torch.Tensor | None
    strength: torch.Tensor | None

    def parts(self) -> tuple[torch.Tensor | None, ...]:
        return self.q, self.k, self.v, self.log_decay, self.strength

    def __getitem__(self, tokens: slice) -> "Inputs":
        return Inputs(*(None if x is None else x[tokens] for x in self.parts()))  # type: ignore[arg-type]


def draw(
    rule: Rule, seed: int, tokens: int, key_heads: int, heads: int, key_size: int, value_size: int,
    dtype: torch.dtype = torch.float32, device: str = "cpu",
) -> Inputs:  # fmt: skip
    """Unit keys (as the models normalise them), q, k, v as views of one fused projection."""
    generator = torch.Generator().manual_seed(seed)
    width = 2 * key_heads * key_size + heads * value_size
    fused = torch.randn(tokens, width, generator=generator)
    split = [key_heads * key_size, key_heads * key_size, heads * value_size]
    q, k, v = fused.split(split, dim=1)
    keys = k.reshape(tokens, key_heads, key_size)
    k.copy_(torch.nn.functional.normalize(keys, dim=-1).flatten(1))
    fused = fused.to(dtype).to(device)
    q, k, v = fused.split(split, dim=1)
    log_decay = None
    if rule.decay != "none":
        shape = (tokens, heads) if rule.decay == "head" else (tokens, heads, key_size)
        # From nearly no decay to a factor of e^-8 in one token.
        log_decay = -8 * torch.rand(shape, generator=generator) ** 4
        log_decay = log_decay.to(device)
    strength = None
    if rule.has_strength:
        strength = torch.rand(tokens, heads, generator=generator).to(dtype).to(device)
    return Inputs(
        q.unflatten(1, (key_heads, key_size)), k.unflatten(1, (key_heads, key_size)),
        v.unflatten(1, (heads, value_size)), log_decay, strength,
    )  # fmt: skip


def draw_equal_keys(
    tokens: int, value_size: int, dtype: torch.dtype = torch.float32, device: str = "cpu"
) -> Inputs:
    """One key of 32 channels, written over and over with hardly any decay, on one head: the worst
    case for a solve, since every write nearly cancels the one before."""
    x = draw(GATED_DELTA, 6, tokens, 1, 1, 32, value_size, dtype, device)
    x.k.copy_(x.k[:1].clone().expand_as(x.k))
    x.strength.fill_(0.98)
    x.log_decay.fill_(-1e-3)
    return x


def relative_error(actual: torch.Tensor, expected: torch.Tensor) -> float:
    """||actual - expected|| / ||expected|| in float64; NaN counts as infinite."""
    difference = (actual.double().cpu() - expected.double().cpu()).norm()
    error = (difference / expected.double().cpu().norm().clamp_min(1e-30)).item()
    return float("inf") if error != error else error
