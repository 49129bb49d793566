"""Good data with JSON values of any kind put into it, for tests of what is not expected."""

import copy
from collections.abc import Iterator
from typing import Any

from hypothesis import strategies as st

SCALARS = (
    st.none()
    | st.booleans()
    | st.integers()
    | st.integers(10**8, 10**18)
    | st.floats()
    | st.text(max_size=8)
    | st.sampled_from(["auto", "full_attention", "M*-E", "fp8", "float32", "x" * 5000])
)
JSON = st.recursive(
    SCALARS,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=5), inner),
    max_leaves=6,
)


def paths(value: Any, above: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """Every place in the config, in objects and among the first items of lists."""
    if above:
        yield above
    if isinstance(value, dict | list):
        items = list(value.items()) if isinstance(value, dict) else list(enumerate(value))[:3]
        for key, inner in items:
            yield from paths(inner, (*above, key))


@st.composite
def spoiled(draw: st.DrawFn, good: list[dict[str, Any]]) -> dict[str, Any]:
    """A good config with one to three values replaced or taken away."""
    config = copy.deepcopy(draw(st.sampled_from(good)))
    for _ in range(draw(st.integers(1, 3))):
        *parents, last = draw(st.sampled_from(list(paths(config)) or [("new",)]))
        here = config
        for key in parents:
            here = here[key]
        if draw(st.integers(0, 9)) == 0 and isinstance(here, dict):
            here.pop(last, None)
        else:
            here[last] = draw(JSON)
    return config
