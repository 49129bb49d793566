"""Whole models: their weights, and that cutting a prompt into steps changes nothing."""

from dataclasses import replace

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("triton")

from hybridsim.kernels.experts import route  # noqa: E402
from hybridsim.kernels.model.batch import MIN_ROWS, PAGE_SIZE, Pools, StepShape, make_batch  # noqa: E402, I001
from hybridsim.kernels.model.ffn import Moe  # noqa: E402
from hybridsim.kernels.model.latent_attention import is_absorbed  # noqa: E402
from hybridsim.kernels.model.model import HybridModel, check_model, timed_shapes  # noqa: E402
from hybridsim.kernels.model.place import Place  # noqa: E402
from hybridsim.models import (  # noqa: E402
    CATALOGUE,
    AttentionSpec,
    LatentSpec,
    LayerSpec,
    MlpSpec,
    ModelSpec,
    MoeSpec,
    get_model,
)
from hybridsim.models.recurrent import recurrent  # noqa: E402

from .helpers import relative_error  # noqa: E402
from .twin_model import feed_forward, mixed  # noqa: E402
from .twin_model import hidden as twin_hidden  # noqa: E402

FULL = AttentionSpec(4, 2, 32, output_gate=True, qk_norm=True)
LATENT = AttentionSpec(
    4, 4, 32, latent=LatentSpec(kv_rank=32, rope_dim=16, nope_dim=16, value_dim=16)
)
DELTA = recurrent("gated_deltanet", 2, 4, 32, 16, conv_kernel=4)
# On an H200 the chunked form of KDA is wrong for keys of 32; models have 128.
KDA_SIZE = 128 if torch.cuda.is_available() else 32
CHANNELS = recurrent("kda", 2, 2, KDA_SIZE, KDA_SIZE, conv_kernel=4)
EXPERTS = MoeSpec(8, 3, 32, shared_intermediate=16, shared_gate=True)
BIASED = MoeSpec(8, 2, 16, shared_intermediate=32, router_bias=True)


def small(name, *layers):
    return ModelSpec(name, tuple(LayerSpec(*layer) for layer in layers), 64, 1000, False)


SMALL = {
    "dense": small("dense", (DELTA, MlpSpec(48)), (FULL, MlpSpec(48))),
    "next": small("next", (DELTA, EXPERTS), (FULL, EXPERTS)),
    "kimi": small("kimi", (CHANNELS, MlpSpec(48)), (LATENT, BIASED), (CHANNELS, BIASED)),
}


@pytest.fixture
def make(device, half_dtype):
    def model(name):
        torch.manual_seed(0)
        return HybridModel(SMALL[name], num_slots=8, num_pages=24, place=Place(device, half_dtype))

    return model


def weights(model):
    """Every tensor of weights of every layer, shared experts of several layers once for each."""
    found = [model.norm, model.embedding]
    found += [] if model.head is model.embedding else [model.head]
    for layer in model.layers:
        parts = [layer.mixer, layer.ffn, *(vars(layer.ffn).get(x) for x in ("shared", "weights"))]
        found += [layer.norm, layer.ffn_norm]
        for part in filter(None, parts):
            states = ("states", "conv_states")
            found += [
                x for key, x in vars(part).items()
                if isinstance(x, torch.Tensor) and key not in states
            ]  # fmt: skip
    return found


@pytest.mark.parametrize(
    ("name", "tp"),
    [("qwen3.5-0.8b", 1), ("qwen3-next-80b-a3b", 1), ("qwen3-next-80b-a3b", 4),
     ("kimi-linear-48b-a3b", 1), ("qwen3.5-35b-a3b", 2)],
)  # fmt: skip
def test_a_model_has_the_parameters_of_its_checkpoint(name, tp):
    """All of them, counted tensor by tensor, on a device without memory."""
    spec = get_model(name).for_rank(tp)
    model = HybridModel(spec, 2, 2, Place("meta"))
    assert sum(x.numel() for x in weights(model)) == spec.num_params
    assert model.states[:, 0].numel() * 4 == spec.recurrent_bytes
    assert model.conv_states[:, 0].numel() * 2 == spec.conv_bytes


def test_the_models_that_can_be_timed_are_known():
    assert timed_shapes(list(CATALOGUE), get_model) == [
        "qwen3.5-0.8b", "qwen3.5-4b", "qwen3.5-9b", "qwen3.5-27b", "qwen3.5-35b-a3b",
        "qwen3.5-122b-a10b", "qwen3.5-397b-a17b", "qwen3-next-80b-a3b", "kimi-linear-48b-a3b",
    ]  # fmt: skip
    with pytest.raises(ValueError, match="no step for mamba2"):
        check_model(get_model("nemotron-h-8b"))


def run(model, tokens, chunks, contexts, first, last):
    """One step over tokens[first:last] of a request whose pages and slot follow the seed."""
    batch = model.batch(StepShape(tuple(chunks), tuple(contexts)), seed=1, own_routing=True)
    batch.tokens[: last - first].copy_(tokens[first:last])
    return model.hidden(batch)


@pytest.mark.usefixtures("filler_rows")
@pytest.mark.parametrize("name", SMALL)
def test_steps_of_a_prompt_give_what_the_whole_prompt_gives(name, make, device, half_dtype):
    """20 tokens at once = 7 and 13 after them, or 18 and then two decode steps; and the truth."""
    model = make(name)
    most = 2e-2 if half_dtype == torch.float16 else 6e-2
    tokens = torch.arange(20, dtype=torch.int32, device=device) * 7 % 1000
    whole = run(model, tokens, [(20, 0)], [], 0, 20)
    assert relative_error(whole, twin_hidden(model, tokens)[-1:]) < most
    run(model, tokens, [(7, 0)], [], 0, 7)
    assert relative_error(run(model, tokens, [(13, 7)], [], 7, 20), whole) < most
    run(model, tokens, [(18, 0)], [], 0, 18)
    run(model, tokens, [], [18], 18, 19)
    assert relative_error(run(model, tokens, [], [19], 19, 20), whole) < most


def test_both_forms_of_latent_attention_give_the_same(make):
    """Two chunks, one after a prefix that ends inside a page."""
    model = make("kimi")
    mixer = model.attention_layers[0]
    batch = model.batch(StepShape(((9, 21), (12, 0)), ()), seed=3)
    q, latents = model.place.random(21, 4, 32), model.place.random(21, 48)
    absorbed, expanded = q.new_empty(21, 4, 16), q.new_empty(21, 4, 16)
    mixer.absorbed(q, latents, batch, absorbed)
    mixer.expanded(q, latents, batch, expanded)
    assert relative_error(absorbed, expanded) < 1e-2


def test_short_chunks_after_long_prefixes_stay_in_the_latent_space():
    assert is_absorbed([(8, 5000)])
    assert not is_absorbed([(500, 5000)])
    assert not is_absorbed([(8, 0)])


def pools(**changes):
    sizes = {"num_pages": 40, "num_slots": 9, "query_block": 128, "num_heads": 2, "chunk_size": 64}
    return Pools(**(sizes | {"device": "cpu"} | changes))


def test_a_batch_owns_every_page_and_slot_once():
    shape = StepShape(((20, 0), (5, 30)), (7, 100))
    batch = make_batch(shape, pools(), seed=0)
    used = [batch.table[0, :2], batch.table[1, :3], batch.decode_table[0, :1],
            batch.decode_table[1, :7]]  # fmt: skip
    assert len(torch.cat(used).unique()) == 2 + 3 + 1 + 7
    slots = torch.cat([batch.slots, batch.plan.segments[:, 2]])
    assert len(slots.unique()) == 4
    # 27 tokens: 20 and 5 of the chunks, then the requests' at 7 and 100.
    assert batch.positions.tolist() == [*range(20), *range(30, 35), 7, 100]
    assert batch.ends.tolist() == [19, 24, 25, 26]
    last = batch.decode_table[1, 6] * PAGE_SIZE + 100 - 96
    assert batch.rows[26] == last


def test_prefix_rows_follow_the_table_page_by_page():
    """Prefixes of 0 and 30 tokens: nothing of the first, then two pages of the second."""
    batch = make_batch(StepShape(((20, 0), (5, 30)), ()), pools(), seed=0)
    pages = batch.table[1, :2]
    expected = (pages[:, None] * PAGE_SIZE + torch.arange(PAGE_SIZE)).flatten()
    assert torch.equal(batch.prefix_rows, expected)
    assert batch.prefix_table[1].tolist() == [0, 1]


def test_small_steps_are_filled_up_and_large_contexts_share_pages():
    batch = make_batch(StepShape((), (2000,)), pools(num_experts=4), seed=0)
    assert len(batch.tokens) == len(batch.positions) == MIN_ROWS
    assert batch.rows[1:].tolist() == [-1] * (MIN_ROWS - 1)
    counts = torch.bincount(batch.decode_table[0].long(), minlength=40)
    assert set(counts.tolist()) == {3, 4}  # 126 pages over a pool of 40
    assert batch.scores is not None


@pytest.mark.gpu
@pytest.mark.parametrize(
    ("name", "tp", "layers"),
    [("qwen3.5-0.8b", 1, (0, 3)), ("qwen3-next-80b-a3b", 1, (0, 3)),
     ("qwen3-next-80b-a3b", 4, (0, 3)), ("kimi-linear-48b-a3b", 1, (0, 1, 3))],
)  # fmt: skip
def test_layers_at_model_sizes_equal_the_truth(name, tp, layers):
    """One layer of each kind, mixer and feed-forward part apart, over 150 tokens at once.

    Of experts that bfloat16 makes equal either may be chosen: the truth takes the choices of the
    routing, which are looked at apart.
    """
    torch.manual_seed(0)
    spec = get_model(name).for_rank(tp)
    spec = replace(spec, layers=tuple(spec.layers[i] for i in layers), vocab=1000)
    model = HybridModel(spec, num_slots=4, num_pages=40)
    batch = model.batch(StepShape(((150, 0),), ()), seed=1, own_routing=True)
    x = model.place.random(150, spec.hidden)
    for layer in model.layers:
        mixer = layer.mixer
        projected = mixer.project(x)
        inputs = mixer.prepare(projected, mixer.convolve(projected, batch), batch)
        out = mixer.finish(mixer.mix(inputs, batch), projected)
        expected = mixed(mixer, x.double()) @ mixer.output.double().T
        assert relative_error(out, expected) < 1.5e-2
        out = model.feed_forward(layer, x, batch)
        chosen = best_experts(layer.ffn, x) if isinstance(layer.ffn, Moe) else None
        assert relative_error(out, feed_forward(layer.ffn, x.double(), chosen)) < 1.5e-2


def best_experts(ffn, x):
    """Experts `[T, k]` and weights as the kernel chooses them; none left out has a larger score."""
    logits = ffn.dense(x).logits
    assert relative_error(logits, x.double() @ ffn.router.double().T) < 1e-2
    routing = route(logits, ffn.spec.num_active, ffn.scoring, ffn.bias)
    experts = routing.experts.long()
    least = logits.gather(1, experts).min(dim=1).values
    assert (least >= logits.scatter(1, experts, float("-inf")).max(dim=1).values).all()
    return experts, routing.weights.double()


def test_slots_are_copied_in_every_layer_and_others_stay(make, device):
    model = make("next")
    model.states.normal_()
    before = model.states.clone(), model.conv_states.clone()
    sources, targets = (torch.tensor(x, device=device, dtype=torch.int32) for x in ([1, 5], [0, 6]))
    model.copy_states(sources, targets)
    came_from = [1, 1, 2, 3, 4, 5, 5, 7]
    assert torch.equal(model.states, before[0][:, came_from])
    assert torch.equal(model.conv_states, before[1][:, came_from])
