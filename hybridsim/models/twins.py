"""Models to compare a hybrid with: without its states, or with full attention everywhere."""

from dataclasses import replace

from hybridsim.errors import UserError
from hybridsim.models.recurrent import RecurrentSpec
from hybridsim.models.spec import LayerSpec, ModelSpec


def attention_only(spec: ModelSpec) -> ModelSpec:
    """The same model without recurrent layers: equal KV per token and no state.

    Its prefix cache hits wherever KV matches, so it bounds what a hybrid can reuse.
    """
    if not spec.attention_layers:
        raise UserError("model", f"{spec.name} has no attention layer to keep")
    bare = (
        LayerSpec(None, layer.ffn) if isinstance(layer.mixer, RecurrentSpec) else layer
        for layer in spec.layers
    )
    layers = tuple(layer for layer in bare if layer.mixer or layer.ffn)
    return replace(spec, name=f"{spec.name} (attention only)", layers=layers)


def all_full(spec: ModelSpec) -> ModelSpec:
    """The same model with its first attention layer's mixer in place of every recurrent one."""
    if not spec.attention_layers:
        raise UserError("model", f"{spec.name} has no attention layer to repeat")
    full = spec.attention_layers[0]
    layers = tuple(
        replace(layer, mixer=full) if isinstance(layer.mixer, RecurrentSpec) else layer
        for layer in spec.layers
    )
    return replace(spec, name=f"{spec.name} (all full)", layers=layers)
