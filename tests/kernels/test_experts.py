"""Routing and grouped expert products against one token after another in float64."""

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("triton")

from hybridsim.kernels import experts  # noqa: E402
from hybridsim.kernels.experts import Tile, naive  # noqa: E402

from .helpers import relative_error  # noqa: E402

SCORINGS = pytest.mark.parametrize("scoring", ["softmax", "sigmoid"])


@pytest.fixture
def randn(device):
    generator = torch.Generator().manual_seed(0)
    return lambda *shape: torch.randn(*shape, generator=generator).to(device)


@SCORINGS
@pytest.mark.parametrize("shape", [(1, 5, 1), (9, 12, 3), (40, 6, 6), (3, 512, 10)], ids=str)
def test_routing_chooses_and_weighs_as_naive(shape, scoring, randn):
    """Scores are a view with padding: their token stride is free."""
    tokens, num_experts, active = shape
    scores = randn(tokens, num_experts + 3)[:, :num_experts]
    bias = randn(num_experts) if scoring == "sigmoid" else None
    routing = experts.route(scores, active, scoring, bias)
    chosen, weights = naive.choose(scores, active, scoring, bias)
    assert torch.equal(routing.experts.long(), chosen)
    assert relative_error(routing.weights, weights) < 1e-6


@pytest.mark.parametrize("shape", [(0, 4, 2), (1, 4, 2), (37, 5, 2), (37, 64, 10)], ids=str)
def test_every_assignment_is_in_exactly_one_row_of_its_expert(shape, randn):
    tokens, num_experts, active = shape
    routing = experts.route(randn(tokens, num_experts), active, "softmax")
    flat = routing.experts.flatten().cpu()
    assert routing.counts.cpu().tolist() == torch.bincount(flat, minlength=num_experts).tolist()
    for expert in range(num_experts):
        rows = routing.rows[expert, : routing.counts[expert]].cpu()
        assert sorted(rows.tolist()) == torch.nonzero(flat == expert).flatten().tolist()


@SCORINGS
@pytest.mark.parametrize("rows", [16, 32])
@pytest.mark.parametrize("shape", [(1, 4, 2, 32, 48), (23, 4, 2, 48, 32), (70, 3, 1, 16, 16)])
def test_the_mixture_equals_naive(shape, rows, scoring, randn, half_dtype):
    """Sizes whose largest power of two is below the tile; blocks that are full, partial, absent."""
    tokens, num_experts, active, hidden, width = shape
    x, shared = randn(tokens, 2 * hidden).to(half_dtype).split(hidden, dim=1)
    up = (randn(num_experts, 2 * width, hidden) * hidden**-0.5).to(half_dtype)
    down = (randn(num_experts, hidden, width) * width**-0.5).to(half_dtype)
    logits = randn(tokens, num_experts + 1)
    routing = experts.route(logits[:, :-1], active, scoring)
    tile = Tile(rows, 32, 32, 4, 2)
    inner = experts.gate_up(x, up, routing, tile)
    parts = experts.down(inner, down, routing, tile)
    out = experts.combine(parts, routing.weights, shared, logits[:, -1])
    expected = naive.mixture(
        x, routing.experts, routing.weights, up, down, shared, logits[:, -1]
    )  # fmt: skip
    assert relative_error(out, expected) < 5e-3


def test_rows_of_no_expert_are_never_read(randn, half_dtype):
    """All tokens choose expert 2: matrices of the others hold NaN and must not matter."""
    x = randn(20, 32).to(half_dtype)
    up, down = randn(4, 32, 32).to(half_dtype), randn(4, 32, 16).to(half_dtype)
    up[[0, 1, 3]] = float("nan")
    down[[0, 1, 3]] = float("nan")
    scores = torch.zeros(20, 4, device=x.device)
    scores[:, 2] = 5.0
    routing = experts.route(scores, 1, "softmax")
    parts = experts.down(experts.gate_up(x, up, routing), down, routing)
    out = experts.combine(parts, routing.weights)
    assert relative_error(out, naive.mixture(x, routing.experts, routing.weights, up, down)) < 5e-3


def test_sizes_that_do_not_fit_are_refused(randn):
    routing = experts.route(randn(3, 4), 2, "softmax")
    with pytest.raises(ValueError, match="do not fit"):
        experts.gate_up(randn(3, 16), randn(4, 32, 32), routing)
    with pytest.raises(ValueError, match="multiples of 16"):
        experts.gate_up(randn(3, 24), randn(4, 32, 24), routing)
    with pytest.raises(ValueError, match="5 of 4 experts"):
        experts.route(randn(3, 4), 5, "softmax")


# The shapes of the models: experts, active, hidden, width of one rank (TP 4 for the second).
@pytest.mark.gpu
@pytest.mark.parametrize(
    "shape", [(512, 10, 2048, 512), (512, 10, 2048, 128), (256, 8, 2304, 1024)], ids=str
)
@pytest.mark.parametrize("tokens", [1, 64, 3000, 9000])
def test_model_sizes_equal_naive_on_some_tokens(shape, tokens):
    num_experts, active, hidden, width = shape
    generator = torch.Generator("cuda").manual_seed(tokens)

    def bf16(*sizes, scale=1.0):
        values = torch.randn(*sizes, generator=generator, device="cuda", dtype=torch.bfloat16)
        return values * scale

    x = bf16(tokens, hidden)
    up = bf16(num_experts, 2 * width, hidden, scale=hidden**-0.5)
    down = bf16(num_experts, hidden, width, scale=width**-0.5)
    scores = torch.randn(tokens, num_experts, generator=generator, device="cuda")
    routing = experts.route(scores, active, "softmax")
    parts = experts.down(experts.gate_up(x, up, routing), down, routing)
    out = experts.combine(parts, routing.weights)
    assert not out.isnan().any()
    chosen, weights = naive.choose(scores, active, "softmax")
    some = torch.arange(0, tokens, max(1, tokens // 7), device="cuda")
    expected = naive.mixture(x[some], chosen[some], weights[some], up, down)
    assert relative_error(out[some], expected) < 1e-2
