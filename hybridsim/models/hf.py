"""Models from a Hugging Face config.json, by field names. Unknown architectures are errors."""

from collections.abc import Callable, Mapping
from os.path import isdir
from pathlib import Path
from typing import Any

import orjson

from hybridsim.errors import UserError, shorten, unknown_name
from hybridsim.files import read_whole
from hybridsim.models import hf_dense, hf_linear, hf_mamba
from hybridsim.models.dtypes import Dtypes
from hybridsim.models.fields import Fields
from hybridsim.models.spec import LayerSpec, ModelSpec

Builder = Callable[[Fields], tuple[LayerSpec, ...]]

# model_type -> (layers of the config, number format of its states where the config names none).
ARCHITECTURES: dict[str, tuple[Builder, str]] = {
    "qwen3_5_text": (hf_linear.qwen_layers, "float32"),
    "qwen3_5_moe_text": (hf_linear.qwen_layers, "float32"),
    "qwen3_next": (hf_linear.qwen_layers, "float32"),
    "kimi_linear": (hf_linear.kimi_layers, "float32"),
    "minimax": (hf_linear.minimax_layers, "bfloat16"),
    "minimax_text_01": (hf_linear.minimax_layers, "bfloat16"),
    "nemotron_h": (hf_mamba.nemotron_layers, "float32"),
    "jamba": (hf_mamba.jamba_layers, "bfloat16"),
    "llama": (hf_dense.dense_layers, "float32"),
    "mistral": (hf_dense.dense_layers, "float32"),
    "qwen2": (hf_dense.dense_layers, "float32"),
    "qwen3": (hf_dense.dense_layers, "float32"),
}

# Wrappers around a language model: their geometry is in the nested text_config.
_WRAPPERS = {"qwen3_5": "qwen3_5_text", "qwen3_5_moe": "qwen3_5_moe_text"}


def from_hf_config(path: str | Path) -> ModelSpec:
    """The model of a config.json (or of a folder with one).

    UserError names the file, the field, its value and what is allowed: for a file that cannot be
    read, an unknown architecture, a missing or impossible field, or one that is not understood.
    """
    file = Path(path)
    file = file / "config.json" if isdir(file) else file
    try:
        config = orjson.loads(read_whole(file))
    except orjson.JSONDecodeError as error:
        raise UserError(f"{file}:{error.lineno}", f"is not valid JSON: {error.msg}") from None
    if not isinstance(config, dict):
        raise UserError(str(file), "is not a config: expected a JSON object")
    return from_hf_mapping(config, str(file), name=_name(config, file))


def _name(config: Mapping[str, Any], file: Path) -> str:
    given = str(config.get("_name_or_path") or "").rstrip("/")
    return given.rsplit("/", 1)[-1] or file.resolve().parent.name or file.stem


def from_hf_mapping(config: Mapping[str, Any], place: str, name: str) -> ModelSpec:
    """The model of a parsed config; `place` is named in errors."""
    model_type, values = _text_part(config, place)
    layers_of, state_dtype = ARCHITECTURES[model_type]
    fields = Fields(values, place)
    fields.get("model_type", "architectures", "text_config", "vision_config", "audio_config")
    layers = layers_of(fields)
    spec = ModelSpec(
        name=name,
        layers=layers,
        hidden=fields.count("hidden_size"),
        vocab=fields.count("vocab_size"),
        tied=fields.flag("tie_word_embeddings"),
        dtypes=_dtypes(fields, state_dtype),
        source=f"{place} ({model_type})",
        confidence="checked",
    )
    fields.close()
    return spec


def _text_part(config: Mapping[str, Any], place: str) -> tuple[str, dict[str, Any]]:
    """The language model's own fields; what only the wrapper says (tying, dtype) is kept."""
    outer = str(config.get("model_type"))
    nested = config.get("text_config")
    if nested is not None and not isinstance(nested, dict):
        raise UserError(f"{place}: text_config", "is not an object")
    if nested is None:
        model_type, values = _WRAPPERS.get(outer, outer), dict(config)
    else:
        kept = ("tie_word_embeddings", "torch_dtype", "dtype", "quantization_config")
        shared = {key: config[key] for key in kept if key in config}
        model_type = str(nested.get("model_type", _WRAPPERS.get(outer, outer)))
        values = shared | nested
    if model_type not in ARCHITECTURES:
        raise unknown_name(f"{place}: model_type", model_type, [*ARCHITECTURES, *_WRAPPERS])
    return model_type, values


def _dtypes(fields: Fields, state_dtype: str) -> Dtypes:
    model = fields.dtype("torch_dtype", "dtype", default="bfloat16")
    state = fields.dtype("mamba_ssm_dtype", "mamba_ssm_cache_dtype", default=state_dtype)
    quantization = fields.get("quantization_config")
    if quantization is None:
        return Dtypes(weights=model, kv=model, conv=model, state=state)
    method = quantization.get("quant_method") if isinstance(quantization, dict) else quantization
    if method != "fp8":
        raise fields.error(
            "quantization_config", f"{shorten(repr(method))} is not modelled; allowed: 'fp8'"
        )
    return Dtypes(weights="float8", kv=model, conv=model, state=state)
