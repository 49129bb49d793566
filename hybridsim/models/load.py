"""The way in: a catalogue name, the path of a config.json or a mapping becomes a model."""

from collections.abc import Mapping
from os.path import isfile, join  # unlike Path they take any text, however long
from pathlib import Path

from hybridsim.errors import UserError, shorten, unknown_name
from hybridsim.models.catalogue import CATALOGUE
from hybridsim.models.spec import ModelSpec


def get_model(value: object, place: str = "model") -> ModelSpec:
    """The model that `value` means; `place` is named in errors.

    A text is a catalogue name first; one that ends in .json or has a path separator, or names a
    folder with a config.json, is a path. A mapping is an inline spec, see `from_inline`.
    UserError for anything else, with the nearest name where there is one.
    """
    # The readers need pydantic and orjson, the catalogue nothing.
    if isinstance(value, Mapping):
        from hybridsim.models.inline import from_inline

        return from_inline(value, place, get_model)
    if not isinstance(value, str | Path):
        allowed = "a catalogue name, the path of a config.json, a mapping"
        raise UserError(place, f"{shorten(repr(value))} is not a model; allowed: {allowed}")
    text = str(value)
    if text in CATALOGUE:
        return CATALOGUE[text]()
    if text.endswith(".json") or "/" in text or isfile(join(text, "config.json")):
        from hybridsim.models.hf import from_hf_config

        return from_hf_config(text)
    raise unknown_name(place, text, list(CATALOGUE))
