"""Counted work against the model's own counts of operations, weights, states and KV."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hybridsim.cost import PrefillChunk
from hybridsim.cost import work as count
from hybridsim.cost.counts import count_step
from hybridsim.cost.efficiency import MATMUL
from hybridsim.models import CATALOGUE, get_model

MODELS = {name: get_model(name) for name in CATALOGUE}
COUNTS = {name: count_step(model) for name, model in MODELS.items()}

names = st.sampled_from(sorted(MODELS))
chunks = st.lists(
    st.builds(PrefillChunk, st.integers(1, 9000), st.integers(0, 200_000)), min_size=1, max_size=4
)


@given(names, chunks)
def test_prefill_does_the_operations_that_the_model_counts(name, chunks):
    """Logits of one token a chunk, everything else for all tokens."""
    tokens = sum(chunk.num_new_tokens for chunk in chunks)
    work = count.token_work(COUNTS[name], tokens, len(chunks))
    work += count.prefill_work(COUNTS[name], chunks)
    counted = [MODELS[name].prefill_flops(x.num_new_tokens, x.num_prefix_tokens) for x in chunks]
    assert sum(one.flops for one in work) == sum(flops.total for flops in counted)


@given(names, st.integers(1, 300), st.integers(0, 100_000))
def test_decoding_does_the_operations_that_the_model_counts(name, num_decodes, context):
    """Requests of equal contexts, so that windows are full for all or for none."""
    counts = COUNTS[name]
    work = count.token_work(counts, num_decodes, num_decodes)
    work += count.scan_decode_work(counts, num_decodes)
    for kind in counts.attention:
        keys = count.keys_read(kind, num_decodes, num_decodes * context)
        work.append(count.attention_decode_work(kind, num_decodes, keys))
    total = num_decodes * MODELS[name].decode_flops(context).total
    assert sum(one.flops for one in work) == total


@given(names, st.integers(1, 300), st.integers(0, 3000))
def test_decoding_moves_states_and_keys_at_least(name, num_decodes, context):
    """Every state is read and written, every visible key read and the new one written too."""
    model, counts = MODELS[name], COUNTS[name]
    scans = sum(one.moved_bytes for one in count.scan_decode_work(counts, num_decodes))
    assert scans >= 2 * num_decodes * model.state_bytes
    attention = sum(
        count.attention_decode_work(
            kind, num_decodes, count.keys_read(kind, num_decodes, num_decodes * context)
        ).moved_bytes
        for kind in counts.attention
    )
    assert attention >= num_decodes * (model.kv_bytes(context) + model.kv_bytes_per_token)


@pytest.mark.parametrize("name", sorted(MODELS))
def test_many_tokens_read_every_weight_once(name):
    """With so many tokens that each expert is chosen: all matrices, but for an input embedding."""
    model = MODELS[name]
    few = sum(one.moved_bytes for one in count.token_work(COUNTS[name], 10**5, 0))
    more = sum(one.moved_bytes for one in count.token_work(COUNTS[name], 2 * 10**5, 0))
    # Inputs and outputs grow with the tokens; what stays when they are taken away are weights.
    weights = 2 * few - more
    matrices = model.num_params - model.other_params - model.embedding_params + model.head_params
    per_param = model.weight_bytes / model.num_params
    assert weights == pytest.approx(matrices * per_param, rel=1e-3)


@pytest.mark.parametrize(
    ("name", "products"),
    [
        # A mixer's two and an MLP's two, 24 layers.
        ("qwen3.5-0.8b", 24 * 4),
        # Beside a mixer's two: router, two of the shared expert, its gate; 48 layers.
        ("qwen3-next-80b-a3b", 48 * 6),
        # The first layer has an MLP, 26 have experts with a shared one that has no gate.
        ("kimi-linear-48b-a3b", 27 * 2 + 2 + 26 * 3),
        # Layers of one part only: 23 Mamba2, 23 of experts with a shared one, 6 of attention.
        ("nemotron-3-nano-30b-a3b", 23 * 2 + 23 * 3 + 6 * 2),
    ],
)
def test_products_that_every_token_passes_are_launched_one_by_one(name, products):
    [dense] = [work for work in count.token_work(COUNTS[name], 5, 1) if work.part == MATMUL]
    assert dense.num_launches == products
