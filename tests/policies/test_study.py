"""The committed cross of policies has every pair, and no row in it passes what is proven."""

from itertools import product
from pathlib import Path

import pandas as pd
import pytest

from hybridsim.policies import CHECKPOINT, EVICTION, THINNING

FOLDER = Path(__file__).resolve().parents[2] / "results" / "policies"
MODELS = ("qwen3.5-0.8b", "qwen3-next-80b-a3b")
TRACES = ("conversation", "weka")


def names(column):
    """`lru(refresh=consumed)` is the policy lru."""
    return column.str.partition("(")[0]


def rows_of(trace):
    parts = [pd.read_csv(FOLDER / f"{name}.csv") for name in (trace, f"marked-{trace}")]
    return pd.concat(parts, ignore_index=True)


@pytest.mark.parametrize("trace", TRACES)
def test_every_pair_of_policies_was_run(trace):
    rows = rows_of(trace)
    plain = rows[rows["cache.thinning"].isna()]
    found = set(zip(plain.model, names(plain["cache.checkpoint"]), names(plain["cache.eviction"]),
                    strict=True))  # fmt: skip
    assert set(product(MODELS, CHECKPOINT, EVICTION)) <= found
    thinned = rows[rows["cache.thinning"].notna()]
    found = set(zip(thinned.model, names(thinned["cache.thinning"]),
                    names(thinned["cache.eviction"]), strict=True))  # fmt: skip
    assert set(product(MODELS, THINNING, EVICTION)) == found


@pytest.mark.parametrize("table", [*TRACES, *(f"marked-{name}" for name in TRACES), "agents-tight"])
def test_no_row_passes_what_is_proven(table):
    rows = pd.read_csv(FOLDER / f"{table}.csv")
    assert (rows.token_hit_rate <= rows.bound_token_hit_rate + 1e-9).all()
    assert (rows.bound_token_hit_rate <= rows.ceiling_token_hit_rate + 1e-9).all()
    assert (rows.token_hit_rate <= rows.token_match_rate).all()
    regret = rows.bound_token_hit_rate - rows.token_hit_rate
    assert (regret - rows.regret).abs().max() < 1e-12
    lost = rows.filter(like="lost_tokens_").sum(axis=1)
    ideal = rows.ceiling_token_hit_rate * rows.num_prompt_tokens
    hit = rows.token_hit_rate * rows.num_prompt_tokens
    assert (ideal - hit - lost).abs().max() < 1e-3  # the losses add up to ideal - hit
