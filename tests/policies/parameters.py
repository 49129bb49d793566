"""Every policy of the registries, with parameters that mean something in a few tokens."""

SMALL = {
    "every": {"tokens": 3},
    "balanced": {"states": 2},
    "dp_optimal": {"states": 2, "bin_tokens": 1, "replan": 2},
    "log": {"minimum": 2},
    "retention": {"tokens": 4},
    "tlru": {"threshold_tokens": 4, "next_prompt_tokens": 2},
    "lhd": {"events": 5},
}
SMALL_THINNING = {
    "path_cap": {"max_states": 2},
    "coverage": {"max_states": 2},
    "variance": {"max_states": 2},
    "fifo_cap": {"max_states": 2, "min_spacing_tokens": 3},
}


def named(name):
    """A checkpoint or eviction policy as a config names it."""
    return {"name": name, **SMALL.get(name, {})}


def named_thinning(name):
    """A thinning rule as a config names it."""
    return {"name": name, **SMALL_THINNING[name]}
