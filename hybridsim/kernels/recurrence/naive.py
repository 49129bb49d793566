"""The truth of the recurrence family: one token after another, in float64 unless told otherwise."""

import torch

from hybridsim.kernels.recurrence.rules import Rule


def recurrence(
    rule: Rule,
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    log_decay: torch.Tensor | None,
    strength: torch.Tensor | None,
    initial_state: torch.Tensor | None = None,
    scale: float = 1.0,
    dtype: torch.dtype = torch.float64,
) -> tuple[torch.Tensor, torch.Tensor]:
    """Outputs and the state after every token of one sequence.

    q, k `[T, Hk, K]`; v `[T, H, V]` (H a multiple of Hk: value head h uses key head h*Hk//H);
    log_decay `[T, H]`, `[T, H, K]` or None as `rule.decay` says; strength `[T, H]` or None;
    initial_state `[H, K, V]` or None for zeros.
    Returns o `[T, H, V]` and states `[T + 1, H, K, V]`, states[0] the initial one, both in `dtype`.
    """
    num_tokens, num_heads, value_size = v.shape
    repeat = num_heads // k.shape[1]
    q, k = (x.to(dtype).repeat_interleave(repeat, dim=1) for x in (q, k))
    v = v.to(dtype)
    decay = _decay(rule, log_decay, k)
    b = torch.ones_like(v[..., 0]) if strength is None else strength.to(dtype)
    state = torch.zeros(num_heads, k.shape[2], value_size, dtype=dtype, device=v.device)
    if initial_state is not None:
        state = initial_state.to(dtype)
    states, outputs = [state], []
    for t in range(num_tokens):
        state = decay[t][:, :, None] * state
        recalled = torch.einsum("hk,hkv->hv", k[t], state) if rule.is_delta else 0.0
        written = b[t][:, None] * (v[t] - recalled)
        state = state + torch.einsum("hk,hv->hkv", k[t], written)
        outputs.append(scale * torch.einsum("hk,hkv->hv", q[t], state))
        states.append(state)
    empty = v.new_empty(0, num_heads, value_size)
    return (torch.stack(outputs) if outputs else empty), torch.stack(states)


def _decay(rule: Rule, log_decay: torch.Tensor | None, k: torch.Tensor) -> torch.Tensor:
    """a_t spread over `[T, H, K]`."""
    if rule.decay == "none" or log_decay is None:
        return torch.ones_like(k)
    a = torch.exp(log_decay.to(k.dtype))
    return a if rule.decay == "channel" else a[:, :, None].expand_as(k)
