"""Timed runs: the memory of the GPU, and what a result says of its step times."""

from pathlib import Path

import pytest

from experiments.helpers import tiny, write_experiment
from hybridsim.build import check_run
from hybridsim.config import load_experiment
from hybridsim.errors import UserError
from hybridsim.sweep.execute import execute
from hybridsim.units import format_bytes

GIB = 2**30


def check(folder: Path, **changes):
    """Build the one run of a timed experiment on qwen3.5-27b, without its trace."""
    data = tiny(folder, mode="timed", sweep=None, **({"model": "qwen3.5-27b"} | changes))
    [one] = load_experiment(write_experiment(folder, data)).runs
    return check_run(one.config)


def cache(memory: str):
    return {"memory": memory, "layout": "shared"}


def test_weights_and_pools_must_fit_the_gpu(tmp_path):
    """Of 141 GiB the weights leave the rest: that much is allowed, and not 1 GiB more."""
    built = check(tmp_path, gpu="h200", cache=cache("1GiB"))
    rest = 141 * GIB - built.model.weight_bytes
    check(tmp_path, gpu="h200", cache=cache(str(rest)))
    with pytest.raises(UserError) as caught:
        check(tmp_path, gpu="h200", cache=cache(str(rest + GIB)))
    assert caught.value.place == "cache.memory"
    for part in (built.model.weight_bytes, rest + GIB, 141 * GIB, rest):
        assert format_bytes(part) in caught.value.message
    check(tmp_path, gpu={"name": "h200", "memory": "200GiB"}, cache=cache(str(rest + GIB)))
    # Two ranks hold half of the weights each (norms are copied).
    check(tmp_path, gpu="h200", tp=2, cache=cache(str(rest + GIB)))


def test_weights_that_do_not_fit_are_refused_at_any_cache(tmp_path):
    """27 G weights of 2 B are 50 GiB: too much for 24 GiB, in four ranks well within."""
    for memory in ("1GiB", "unlimited"):
        with pytest.raises(UserError, match="weights take .* more ranks") as caught:
            check(tmp_path, gpu="rtx-4090", cache=cache(memory))
        assert caught.value.place == "gpu"
    with pytest.raises(UserError, match="weights of one rank of 2 take"):
        check(tmp_path, gpu="rtx-4090", tp=2, cache=cache("1GiB"))
    check(tmp_path, gpu="rtx-4090", tp=4, cache=cache("1GiB"))


@pytest.mark.parametrize(
    "gpu",
    ["infinite", {"name": "h200", "cost": "infinite"},
     {"flops_per_s": 1e15, "hbm_bytes_per_s": 4e12}, {"name": "h200", "memory": "unlimited"},
     {"flops_per_s": 1e15, "hbm_bytes_per_s": 4e12, "memory": "unlimited"}],
)  # fmt: skip
def test_gpus_of_unknown_or_unlimited_memory_hold_anything(tmp_path, gpu):
    check(tmp_path, gpu=gpu, cache=cache("900GiB"))


@pytest.mark.parametrize("value", ["much", "Unlimited", -1, 0, True, ".inf", "8 GiBs"])
def test_memories_allow_the_same_of_caches_and_gpus(tmp_path, value):
    allowed = "allowed: a positive size such as 8GiB, 500MB or a number of bytes, or unlimited"
    with pytest.raises(UserError, match=f"cache.memory.*{allowed}"):
        check(tmp_path, gpu="h200", cache={"memory": value, "layout": "shared"})
    if isinstance(value, bool):
        return  # refused by its type
    with pytest.raises(UserError) as caught:
        check(tmp_path, gpu={"name": "h200", "memory": value}, cache=cache("1GiB"))
    assert caught.value.place == "gpu.memory"
    assert allowed in caught.value.message


@pytest.mark.parametrize(
    ("gpu", "model", "says", "hints"),
    [
        ("h200", "qwen3.5-0.8b", "computed from peak rates at shares", True),
        ("h100", "qwen3.5-0.8b", "computed from peak rates at shares", False),
        ("h200", "qwen3.5-4b", "computed from peak rates at shares", False),
        ({"name": "h200", "cost": "roofline"}, "qwen3.5-0.8b", "computed from peak rates", False),
        ({"name": "h200", "efficiency": {"scan": 0.5}}, "qwen3.5-0.8b", "at given shares", True),
        ({"name": "h200", "cost": "measured"}, "qwen3.5-0.8b", "measured on NVIDIA H200", False),
        ("infinite", "qwen3.5-0.8b", "take no time", False),
    ],
)
def test_a_run_says_where_its_step_times_come_from(tmp_path, gpu, model, says, hints):
    data = tiny(tmp_path, mode="timed", gpu=gpu, model=model, sweep=None)
    [one] = load_experiment(write_experiment(tmp_path, data)).runs
    outcome = execute(one, lambda num_done: None).meta["outcome"]
    assert any(says in sentence for sentence in outcome)
    assert any("cost: measured" in sentence for sentence in outcome) == hints
