"""Models written out in an experiment file.

{base: qwen3.5-0.8b, dtypes: {kv: float8}, tp: 2}           a known model, changed

name: mine                                                   or all of it
hidden: 2048
vocab: 151936
layers:
  L: {recurrent: {kind: gated_deltanet, num_key_heads: 16, num_value_heads: 32,
                  key_dim: 128, value_dim: 128, conv_kernel: 4}, mlp: {intermediate: 5120}}
  F: {attention: {num_heads: 16, num_kv_heads: 2, head_dim: 256}, mlp: {intermediate: 5120}}
pattern: LLLF
repeat: 12
"""

from collections.abc import Callable, Mapping
from dataclasses import fields, replace
from typing import Annotated, Any, Literal

from pydantic import Field

from hybridsim.errors import UserError, unknown_name
from hybridsim.models.attention import AttentionSpec, LatentSpec
from hybridsim.models.dtypes import Dtypes, dtype_named
from hybridsim.models.ffn import MlpSpec, MoeSpec
from hybridsim.models.recurrences import KINDS
from hybridsim.models.recurrent import RecurrentSpec, recurrent
from hybridsim.models.spec import LayerSpec, ModelSpec
from hybridsim.models.twins import all_full, attention_only
from hybridsim.models.validate import Strict, checked

# Wider or deeper than any model there will be; beyond it counts of bytes would be nonsense.
_MOST, _MOST_LAYERS = 2**31, 10_000
Count = Annotated[int, Field(ge=1, le=_MOST)]
_CountOrNone = Annotated[int, Field(ge=0, le=_MOST)]
_TWINS = {"attention_only": attention_only, "all_full": all_full}


class _Latent(Strict):
    kv_rank: Count
    rope_dim: _CountOrNone
    nope_dim: Count
    value_dim: Count
    q_rank: Count | None = None


class _Attention(Strict):
    num_heads: Count
    num_kv_heads: Count | None = None
    head_dim: Count
    window: Count | None = None
    latent: _Latent | None = None
    output_gate: bool = False
    qk_norm: bool = False
    qkv_bias: bool = False


class _Recurrent(Strict):
    kind: str
    num_key_heads: Count
    num_value_heads: Count
    key_dim: Count
    value_dim: Count
    conv_kernel: _CountOrNone = 0
    dt_rank: _CountOrNone = 0


class _Mlp(Strict):
    intermediate: Count
    gated: bool = True


class _Moe(Strict):
    num_experts: Count
    num_active: Count
    intermediate: Count
    shared_intermediate: int = Field(default=0, ge=0)
    gated: bool = True
    shared_gate: bool = False
    router_bias: bool = False


class _Layer(Strict):
    attention: _Attention | None = None
    recurrent: _Recurrent | None = None
    mlp: _Mlp | None = None
    moe: _Moe | None = None


class _Changes(Strict):
    name: str | None = None
    dtypes: dict[str, str | int] = Field(default_factory=dict)
    extra_conv_columns: _CountOrNone = 0
    tp: Count = 1
    twin: Literal["attention_only", "all_full"] | None = None


class _Based(_Changes):
    base: Any


class _Whole(_Changes):
    hidden: Count
    vocab: Count
    tied: bool = False
    layers: dict[str, _Layer] = Field(min_length=1)
    pattern: str = Field(min_length=1)
    repeat: Count = 1


def from_inline(
    mapping: Mapping[str, Any], place: str, get_base: Callable[[Any, str], ModelSpec]
) -> ModelSpec:
    """The model that `mapping` writes out, or a known one changed (`base`).

    get_base: turns the value of `base` and its place into a model. UserError names the key.
    """
    if "base" in mapping:
        based = checked(_Based, mapping, place)
        return _changed(get_base(based.base, f"{place}.base"), based, place)
    whole = checked(_Whole, mapping, place)
    letters = {
        letter: _layer(layer, f"{place}.layers.{letter}") for letter, layer in whole.layers.items()
    }
    if len(whole.pattern) * whole.repeat > _MOST_LAYERS:
        num_layers = len(whole.pattern) * whole.repeat
        raise UserError(
            f"{place}.repeat", f"makes {num_layers:,} layers; allowed: at most {_MOST_LAYERS:,}"
        )
    pattern = whole.pattern * whole.repeat
    for letter in whole.pattern:
        if letter not in letters:
            raise unknown_name(f"{place}.pattern", letter, list(letters))
    layers = tuple(letters[letter] for letter in pattern)
    spec = ModelSpec(whole.name or "inline", layers, whole.hidden, whole.vocab, whole.tied)
    return _changed(spec, whole, place)


def _layer(layer: _Layer, place: str) -> LayerSpec:
    for pair in (("attention", "recurrent"), ("mlp", "moe")):
        if all(getattr(layer, name) for name in pair):
            raise UserError(place, f"has both {pair[0]} and {pair[1]}; a layer takes one of them")
    mixer = _attention(layer.attention, place) if layer.attention else _recurrent(layer, place)
    ffn: MlpSpec | MoeSpec | None = None
    if layer.mlp:
        ffn = MlpSpec(**layer.mlp.model_dump())
    if layer.moe:
        if layer.moe.num_active > layer.moe.num_experts:
            num_active = layer.moe.num_active
            message = f"{num_active} is more than num_experts {layer.moe.num_experts}"
            raise UserError(f"{place}.moe.num_active", message)
        ffn = MoeSpec(**layer.moe.model_dump())
    if mixer is None and ffn is None:
        raise UserError(place, "is empty; allowed: attention, recurrent, mlp, moe")
    return LayerSpec(mixer, ffn)


def _attention(given: _Attention, place: str) -> AttentionSpec:
    values = given.model_dump(exclude={"latent", "num_kv_heads"})
    kv_heads = given.num_kv_heads or given.num_heads
    if given.num_heads % kv_heads:
        message = f"{kv_heads} does not divide num_heads {given.num_heads}"
        raise UserError(f"{place}.attention.num_kv_heads", message)
    latent = LatentSpec(**given.latent.model_dump()) if given.latent else None
    return AttentionSpec(num_kv_heads=kv_heads, latent=latent, **values)


def _recurrent(layer: _Layer, place: str) -> RecurrentSpec | None:
    if layer.recurrent is None:
        return None
    if layer.recurrent.kind not in KINDS:
        raise unknown_name(f"{place}.recurrent.kind", layer.recurrent.kind, list(KINDS))
    return recurrent(**layer.recurrent.model_dump())


def _changed(spec: ModelSpec, changes: _Changes, place: str) -> ModelSpec:
    """`spec` with the changes that base and whole models share, in a fixed order."""
    known = [field.name for field in fields(Dtypes)]
    for key in changes.dtypes:
        if key not in known:
            raise unknown_name(f"{place}.dtypes.{key}", key, known)
    if changes.dtypes:
        spec = replace(spec, dtypes=replace(spec.dtypes, **_dtype_values(changes.dtypes, place)))
    if changes.extra_conv_columns:
        spec = spec.with_conv_columns(changes.extra_conv_columns)
    if changes.twin:
        spec = _TWINS[changes.twin](spec)
    if changes.tp != 1:
        spec = _ranked(spec, changes.tp, f"{place}.tp")
    return replace(spec, name=changes.name) if changes.name else spec


def _dtype_values(given: Mapping[str, str | int], place: str) -> dict[str, Any]:
    values: dict[str, Any] = {}
    for key, value in given.items():
        if key == "kv_scale_bytes":
            if not isinstance(value, int) or value < 0:
                raise UserError(f"{place}.dtypes.{key}", f"{value!r} is not a number of bytes")
            values[key] = value
        else:
            values[key] = dtype_named(value, f"{place}.dtypes.{key}")
    return values


def _ranked(spec: ModelSpec, tp: int, place: str) -> ModelSpec:
    try:
        return spec.for_rank(tp)
    except UserError as error:
        raise UserError(place, error.message) from None
