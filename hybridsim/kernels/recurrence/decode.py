"""One token or a few drafts a request: decode, speculative verify, replay of recorded inputs."""

import torch

from hybridsim.kernels.launch import require
from hybridsim.kernels.recurrence.recurrent import run_tokens
from hybridsim.kernels.recurrence.rules import Rule


def decode(
    rule: Rule,
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    log_decay: torch.Tensor | None,
    strength: torch.Tensor | None,
    states: torch.Tensor,
    slots: torch.Tensor,
    token_index: torch.Tensor,
    scale: float = 1.0,
    out: torch.Tensor | None = None,
) -> torch.Tensor:
    """One token for each of N requests; the state in slots[n] (int32, distinct) moves one token on.

    token_index is int32 `[N]`, normally arange(N): where request n's token lies along T = N. It is
    an argument so that a captured graph makes no tensors. Shapes else as in `run_tokens`.
    """
    out = run_tokens(
        rule,
        q,
        k,
        v,
        log_decay,
        strength,
        states,
        token_index,
        None,
        slots,
        slots,
        scale,
        out,
        all_read=True,
    )
    assert out is not None
    return out


def verify(
    rule: Rule,
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    log_decay: torch.Tensor | None,
    strength: torch.Tensor | None,
    states: torch.Tensor,
    read_slots: torch.Tensor,
    draft_slots: torch.Tensor,
    scale: float = 1.0,
) -> torch.Tensor:
    """D drafts for each of N requests, packed along T = N * D, one saved state a draft.

    draft_slots int32 `[N, D]`: where the state after each draft goes, so that accepting m drafts
    means using slot draft_slots[n, m - 1]; the state in read_slots[n] stays as it was.
    """
    num_requests, num_drafts = draft_slots.shape
    require(v.shape[0] == num_requests * num_drafts, "verify needs N * D tokens")
    index = torch.arange(num_requests, dtype=torch.int32, device=v.device)
    out = run_tokens(
        rule, q, k, v, log_decay, strength, states, index * num_drafts,
        torch.full_like(index, num_drafts), read_slots, draft_slots.reshape(-1), scale,
    )  # fmt: skip
    assert out is not None
    return out


def replay(
    rule: Rule,
    k: torch.Tensor,
    v: torch.Tensor,
    log_decay: torch.Tensor | None,
    strength: torch.Tensor | None,
    states: torch.Tensor,
    slots: torch.Tensor,
    num_accepted: torch.Tensor,
    num_drafts: int,
) -> None:
    """Move the state in slots[n] over the first num_accepted[n] of D recorded drafts.

    k, v, log_decay, strength are the recorded inputs, packed `[N * D, ...]`; num_accepted int32
    `[N]` in 0..D. The alternative to one state a draft: D * (Hk K + H V) numbers recorded instead
    of D * H K V, and the update computed twice.
    """
    starts = torch.arange(slots.shape[0], dtype=torch.int32, device=v.device) * num_drafts
    position = torch.arange(num_drafts, dtype=torch.int32, device=v.device)
    is_last = position[None, :] + 1 == num_accepted[:, None]
    save_slots = torch.where(is_last, slots[:, None], -1).to(torch.int32).reshape(-1)
    run_tokens(
        rule, None, k, v, log_decay, strength, states, starts, num_accepted, slots, save_slots
    )
