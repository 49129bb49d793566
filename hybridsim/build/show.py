"""What a user asks of an engine before starting it: block sizes, slots, caps, what binds first."""

from collections.abc import Mapping
from typing import Any

from hybridsim.build.sglang import sized_options
from hybridsim.build.vllm import blocks_in, check_start, layout_of, options_of
from hybridsim.engines.sglang.sizing import describe as describe_sglang
from hybridsim.engines.vllm.show import describe as describe_vllm
from hybridsim.errors import UserError, unknown_name
from hybridsim.models import ModelSpec

Rows = list[tuple[str, str]]


def _show_sglang(model: ModelSpec, memory_bytes: int, given: Mapping[str, Any]) -> Rows:
    rest = dict(given)
    page_size = rest.pop("page_size", 1)
    if isinstance(page_size, bool) or not isinstance(page_size, int) or page_size < 1:
        raise UserError(
            "cache.page_size", f"{page_size!r} is not allowed; allowed: an integer >= 1"
        )
    options, inputs = sized_options(model, memory_bytes, rest, page_size)
    return describe_sglang(options, inputs)


def _show_vllm(version: str, model: ModelSpec, memory_bytes: int, given: Mapping[str, Any]) -> Rows:
    options = options_of(version, given)
    layout = layout_of(model, options)
    num_blocks = blocks_in(memory_bytes, layout)
    check_start(given, options, layout, num_blocks, "cache.memory")
    return describe_vllm(layout, options, num_blocks)


SHOW = {
    "sglang-0.5.23": _show_sglang,
    "vllm-0.33.0": lambda *args: _show_vllm("0.33.0", *args),
    "vllm-0.27.1": lambda *args: _show_vllm("0.27.1", *args),
}


def show_engine(name: str, model: ModelSpec, memory_bytes: int, given: Mapping[str, Any]) -> Rows:
    """Label and text of each line. `given`: the engine's options, as under `engine` in a config."""
    if name not in SHOW:
        raise unknown_name("engine", name, list(SHOW))
    if not model.state_bytes and name.startswith("sglang"):
        raise UserError("model", f"{model.name} is no hybrid; this engine models hybrids only")
    try:
        return SHOW[name](model, memory_bytes, given)
    except UserError as error:
        place = "--memory" if error.place == "cache.memory" else error.place
        raise UserError(place, error.message) from None
