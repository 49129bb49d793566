"""A whole model over one prompt in float64, layer by layer from the papers' formulas."""

import torch

from hybridsim.kernels.attention import naive as attention
from hybridsim.kernels.conv import naive as conv
from hybridsim.kernels.experts import naive as experts
from hybridsim.kernels.model.ffn import Mlp
from hybridsim.kernels.model.gated_attention import GatedAttention
from hybridsim.kernels.model.latent_attention import LatentAttention
from hybridsim.kernels.model.recurrent import GatedDelta
from hybridsim.kernels.pointwise import naive as pointwise
from hybridsim.kernels.recurrence import GATED_DELTA, KDA
from hybridsim.kernels.recurrence import naive as recurrence


def hidden(model, tokens):
    """Hidden vectors `[T, hidden]` after the final norm; weights are the model's."""
    x = model.embedding[tokens.long()].double()
    for layer in model.layers:
        normed = pointwise.rms_norm(x, layer.norm)
        x = x + mixed(layer.mixer, normed) @ layer.mixer.output.double().T
        x = x + feed_forward(layer.ffn, pointwise.rms_norm(x, layer.ffn_norm))
    return pointwise.rms_norm(x, model.norm)


def mlp(ffn, x):
    return pointwise.silu_mul(x @ ffn.gate_up.double().T) @ ffn.down.double().T


def feed_forward(ffn, x, chosen=None):
    """chosen: experts and weights, where the router's exact logits are not to choose them."""
    if isinstance(ffn, Mlp):
        return mlp(ffn, x)
    logits = x @ ffn.router.double().T
    gate = (x @ ffn.shared_gate.double().T)[:, 0] if ffn.spec.shared_gate else None
    if chosen is None:
        chosen = experts.choose(logits, ffn.spec.num_active, ffn.scoring, ffn.bias)
    weights = ffn.weights.gate_up, ffn.weights.down
    return experts.mixture(x, *chosen, *weights, mlp(ffn.shared, x), gate)


def mixed(mixer, x):
    projected = x @ mixer.input.double().T
    if isinstance(mixer, GatedAttention):
        return gated_attention(mixer, projected)
    if isinstance(mixer, LatentAttention):
        return latent_attention(mixer, projected)
    return recurrent(mixer, projected)


def gated_attention(mixer, projected):
    spec, positions = mixer.spec, torch.arange(len(projected), device=projected.device)
    kv = spec.num_kv_heads * spec.head_dim
    q, gate, k, v = projected.split([mixer.width, mixer.width, kv, kv], dim=1)
    q, k, v = (t.unflatten(1, (-1, spec.head_dim)) for t in (q, k, v))
    rotary = spec.head_dim // 4
    q = pointwise.rotate(pointwise.rms_norm(q, mixer.q_norm), positions, rotary, 1e7)
    k = pointwise.rotate(pointwise.rms_norm(k, mixer.k_norm), positions, rotary, 1e7)
    out = attention.attention(q, k, v, spec.head_dim**-0.5)
    return out.flatten(1) * torch.sigmoid(gate)


def latent_attention(mixer, projected):
    """Keys of a head: what the latent gives it, then the part that all heads share; no rotation."""
    latent, heads = mixer.latent, mixer.spec.num_heads
    q, low, shared = projected.split(
        [mixer.query_width, latent.kv_rank, latent.rope_dim], dim=1
    )  # fmt: skip
    low = pointwise.rms_norm(low, mixer.norm)
    own = (low @ mixer.key_up.double().T).unflatten(1, (heads, -1))
    keys = torch.cat([own, shared[:, None].expand(-1, heads, -1)], dim=2)
    values = (low @ mixer.value_up.double().T).unflatten(1, (heads, -1))
    out = attention.attention(
        q.unflatten(1, (heads, -1)), keys, values, (latent.nope_dim + latent.rope_dim) ** -0.5
    )
    return out.flatten(1)


def recurrent(mixer, projected):
    spec = mixer.spec
    convolved, _ = conv.causal_conv(projected[:, : mixer.channels], mixer.taps, None)
    q, k, v = convolved.split([spec.key_width, spec.key_width, spec.value_width], dim=1)
    q, k = (t.unflatten(1, (-1, spec.key_dim)) for t in (q, k))
    q, k = (torch.nn.functional.normalize(t, dim=-1) for t in (q, k))
    v, rest = v.unflatten(1, (-1, spec.value_dim)), projected[:, mixer.channels :]
    heads = spec.num_value_heads
    if isinstance(mixer, GatedDelta):
        rule, activation = GATED_DELTA, "silu"
        gate, a, b = rest.split([spec.value_width, heads, heads], dim=1)
        decay, strength = pointwise.delta_gates(a, b, mixer.a_log, mixer.dt_bias)
    else:
        rule, activation = KDA, "sigmoid"
        f, g, b = rest.split([spec.key_dim, spec.value_dim, heads], dim=1)
        f = (f @ mixer.decay_up.double().T).unflatten(1, (heads, -1))
        gate = g @ mixer.gate_up.double().T
        bias = mixer.dt_bias.view(heads, -1)
        decay, strength = pointwise.channel_gates(f, b, mixer.a_log, bias)
    out, _ = recurrence.recurrence(rule, q, k, v, decay, strength, scale=spec.key_dim**-0.5)
    out = pointwise.gated_norm(out, gate.unflatten(1, (heads, -1)), mixer.norm, activation)
    return out.flatten(1)
