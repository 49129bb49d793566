"""What the vLLM layout needs of a model, taken from its specification."""

from typing import TypeVar

from hybridsim.engines.vllm.layout import Geometry
from hybridsim.engines.vllm.options import VLLMOptions
from hybridsim.errors import UserError
from hybridsim.models.attention import AttentionSpec
from hybridsim.models.dtypes import dtype_named, num_bytes
from hybridsim.models.recurrent import RecurrentSpec
from hybridsim.models.spec import ModelSpec

# The convolution caches of these kinds get one more row for every draft token.
Layer = TypeVar("Layer")

_KINDS_WITH_DRAFT_ROWS = ("gated_deltanet", "kda", "mamba2")


def geometry_of(model: ModelSpec, options: VLLMOptions, place: str = "model") -> Geometry:
    """The geometry of one rank of `model` with the dtypes of `options` (None: the model's own).

    Raises UserError for layers that the modelled engines cannot place: sliding windows, and layers
    of one kind with different sizes.
    """
    for key, value in (("kv", options.kv_dtype), ("state", options.ssm_dtype)):
        if value is not None:
            model = model.with_dtypes(**{key: dtype_named(value, f"engine.{key}_dtype")})
    attention, recurrent = model.attention_layers, model.recurrent_layers
    if not attention or any(layer.window is not None for layer in attention):
        raise UserError(
            place,
            f"{model.name} needs full-attention layers only; sliding windows are not modelled",
        )
    dtypes = model.dtypes
    state_bytes, row_bytes = 0, 0
    if recurrent:
        layer: RecurrentSpec = _one_of(recurrent, place)
        state_bytes = layer.state_bytes(dtypes)
        if layer.kind in _KINDS_WITH_DRAFT_ROWS and layer.conv is not None:
            row_bytes = num_bytes(layer.conv.channels, dtypes.conv)
    first: AttentionSpec = _one_of(attention, place)
    return Geometry(
        num_attention_layers=len(attention),
        num_recurrent_layers=len(recurrent),
        kv_bytes_per_token=first.kv_bytes_per_token(dtypes),
        state_bytes=state_bytes,
        draft_row_bytes=row_bytes,
        is_mla=first.latent is not None,
    )


def _one_of(layers: tuple[Layer, ...], place: str) -> Layer:
    if len(set(layers)) > 1:
        raise UserError(place, "layers of one kind have different sizes; allowed: equal ones")
    return layers[0]
