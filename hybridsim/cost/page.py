"""The table of ceilings in docs/cost.md, made from the shipped file.

python -m hybridsim.cost.page docs/cost.md
"""

import json
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from hybridsim.cost import efficiency as classes

START, END = "<!-- ceilings: made from ceilings.json -->", "<!-- end of ceilings -->"
# What each class is, what bounds it by memory, and the launch that its fixed time belongs to.
_WHAT = {
    classes.MATMUL: ("products that every token passes", "weights", "mixer or FFN"),
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
    lines = [
        "| class | what | share of the matrix rate | share of the bandwidth (of what) "
        "| fixed, us, each | error of the fit |",
        "|---|---|---|---|---|---|",
    ]
    for name, (what, of_what, each) in _WHAT.items():
        lines.append(_line(f"`{name}`", what, of_what, each, name, data["classes"][name]))
        for kind, values in data["kinds"].get(name, {}).items():
            lines.append(_line(f"`{name}`, {kind}", "", of_what, each, name, values))
    return "\n".join([*lines, "", *_rest(data)])


def _line(
    title: str, what: str, of_what: str, each: str, name: str, values: Mapping[str, float]
) -> str:
    compute = "" if name in (classes.POINTWISE, classes.COPY) else f"{values['compute']:.3f}"
    fixed = f"{values['fixed_s'] * 1e6:.1f}, {each}" if each else ""
    memory = f"{values['memory']:.3f} ({of_what})"
    return f"| {title} | {what} | {compute} | {memory} | {fixed} | {values['error']:.1%} |"


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


def renewed(page: str) -> str:
    """The page with its table made anew between the two marks."""
    before, _, rest = page.partition(START)
    _, _, after = rest.partition(END)
    return f"{before}{START}\n{ceilings_table()}\n{END}{after}"


if __name__ == "__main__":
    path = Path(sys.argv[1])
    path.write_text(renewed(path.read_text(encoding="utf-8")), encoding="utf-8")
