"""What every checkpoint policy says of itself must agree with the positions that it names."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hybridsim.policies import CHECKPOINT, make_checkpoint
from hybridsim.policies.checkpoint.base import CheckpointPolicy, PromptView
from hybridsim.request import Request, Spans
from tests.policies.parameters import named

NAMED = [named(name) for name in CHECKPOINT if name != "every"]
EVERY = [{"name": "every", "tokens": tokens} for tokens in (1, 4, 6, 16, 24, 64)]


def view_of(num_prompt_tokens, num_output_tokens, num_hit_tokens, grid_tokens):
    request = Request("r", Spans.of([(1, num_prompt_tokens)]), Spans.unknown(num_output_tokens))
    hit = min(num_hit_tokens, num_prompt_tokens) // grid_tokens * grid_tokens
    return PromptView(request, hit, hit, request.num_final_tokens, grid_tokens)


VIEWS = st.builds(
    view_of,
    st.integers(1, 300),
    st.integers(0, 60),
    st.integers(0, 300),
    st.sampled_from([1, 4, 16, 24]),
)


@pytest.mark.parametrize("value", NAMED + EVERY, ids=str)
@given(view=VIEWS)
def test_a_stride_is_where_the_floored_positions_lie(value, view):
    policy = make_checkpoint(value)
    grid = view.grid_tokens
    stride = policy.stride_tokens(grid)
    floored = {position // grid * grid for position in policy.positions(view)}
    if stride is not None:
        after = (view.num_hit_tokens // stride + 1) * stride
        expected = set(range(after, view.num_final_tokens + 1, stride))
        assert {p for p in floored if p > view.num_hit_tokens} == expected


@pytest.mark.parametrize("value", NAMED + EVERY, ids=str)
def test_only_a_policy_that_never_asks_says_that_it_saves_nothing(value):
    """A long prompt makes each policy name some position, but for one that waits for marks (there
    are none) and one that waits for a fork (the prompt leaves the tree nowhere)."""
    policy = make_checkpoint(value)
    asks = bool(list(policy.positions(view_of(2000, 60, 0, 4))))
    assert policy.saves_states is (value["name"] != "none")
    if value["name"] not in ("marked", "branch"):
        assert asks is policy.saves_states


def test_steps_that_share_no_multiple_with_the_grid_have_no_stride():
    """Floored to 4 the multiples of 6 are 4, 12, 16, 24, ..: unevenly spaced."""
    assert make_checkpoint({"name": "every", "tokens": 6}).stride_tokens(4) is None
    assert make_checkpoint({"name": "every", "tokens": 6}).stride_tokens(24) == 24
    assert make_checkpoint({"name": "every", "tokens": 24}).stride_tokens(4) == 24
    assert make_checkpoint("all_blocks").stride_tokens(24) == 24
    assert make_checkpoint("prompt_end").stride_tokens(24) is None


@given(
    view=VIEWS,
    wanted=st.lists(st.integers(0, 400), max_size=8),
    num_known_tokens=st.integers(0, 360),
)
def test_kept_positions_are_the_nearest_on_the_grid_that_lie_in_known_content(
    view, wanted, num_known_tokens
):
    """By a scan over all tokens: a position counts for the deepest multiple of the grid that is
    neither behind it nor behind the known content, unless a hit spares its tokens."""

    class Given(CheckpointPolicy):
        source = "test"

        def positions(self, view):
            return wanted

    grid = [p for p in range(401) if p % view.grid_tokens == 0]
    expected = {max(g for g in grid if g <= p and g <= num_known_tokens) for p in wanted}
    kept = Given().positions_on_grid(view, num_known_tokens)
    assert kept == [p for p in grid if p in expected and p > view.num_hit_tokens]
