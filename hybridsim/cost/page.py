"""The table of ceilings in docs/cost.md, made from the shipped file.

python -m hybridsim.cost.page docs/cost.md
"""

import json
from collections.abc import Iterator, Mapping
from typing import Any

from hybridsim.cost import efficiency as classes
from hybridsim.docs import MadePart, markdown_table

_HEADS = (
    "class", "what", "share of the matrix rate", "share of the bandwidth (of what)",
    "fixed, us, each", "error of the fit",
)  # fmt: skip
# What each class is, what bounds it by memory, and the launch that its fixed time belongs to.
_WHAT = {
    classes.MATMUL: ("products that every token passes", "weights", "product"),
    classes.POINTWISE: ("norms, gates, activations, rotary embedding", "activations", ""),
    classes.HEAD: ("logits", "weights", "step"),
    classes.EXPERTS: ("products of routed experts", "weights of those touched", "expert layer"),
    classes.ATTENTION_PREFILL: ("attention of new tokens", "KV, queries", "attention layer"),
    classes.ATTENTION_PREFIX: ("attention of new tokens to a paged prefix", "KV", ""),
    classes.ATTENTION_DECODE: ("attention of one token a request", "KV", "attention layer"),
    classes.SCAN_PREFILL: ("convolution and chunked recurrence", "states, inputs", "layer"),
    classes.SCAN_DECODE: ("recurrence of one token a request", "states", "layer"),
    classes.COPY: ("states from slot to slot", "states", "copy"),
}


def ceilings_table() -> str:
    """Markdown: what each class attains, and what else the file holds."""
    data = json.loads(classes.SHIPPED.read_text())
    rows = []
    for name, (what, of_what, each) in _WHAT.items():
        rows.append(_row(f"`{name}`", what, of_what, each, name, data["classes"][name]))
        for kind, values in data["kinds"].get(name, {}).items():
            rows.append(_row(f"`{name}`, {kind}", "", of_what, each, name, values))
    return "\n".join([markdown_table(_HEADS, rows), "", *_rest(data)])


def _row(
    title: str, what: str, of_what: str, each: str, name: str, values: Mapping[str, float]
) -> list[str]:
    compute = "" if name in (classes.POINTWISE, classes.COPY) else f"{values['compute']:.3f}"
    fixed = f"{values['fixed_s'] * 1e6:.1f}, {each}" if each else ""
    memory = f"{values['memory']:.3f} ({of_what})"
    return [title, what, compute, memory, fixed, f"{values['error']:.1%}"]


def _rest(data: Mapping[str, Any]) -> Iterator[str]:
    floors, machine = data["floors"], data["profiles"][0]["machine"]
    models = ", ".join(
        one["model"] + (f" (one rank of {one['tp']})" if one["tp"] > 1 else "")
        for one in data["profiles"]
    )
    yield (
        f"Fitted on {models}; {machine['gpu']}, {machine['date']}. "
        f"A plain copy reached {floors['copy_bytes_per_s'] / 1e12:.2f} TB/s and a plain matrix "
        f"product {floors['matmul_flops_per_s'] / 1e12:.0f} TFLOP/s in these runs. "
        f"A step takes {data['step_overhead_s'] * 1e6:.0f} us besides."
    )
    yield ""
    kinds = [
        f"{kind} {factor:.2f} of `{name}`"
        for name, factors in data["relative"].items()
        for kind, factor in factors.items()
    ]
    yield (
        "Rates of kinds of layers that no profile has are multiples of these, from kernels timed "
        f"side by side: {', '.join(kinds)}."
    )


PART = MadePart(
    "<!-- ceilings: made from ceilings.json -->", "<!-- end of ceilings -->", ceilings_table
)

if __name__ == "__main__":
    PART.main()
