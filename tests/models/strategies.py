"""Small random models for property tests."""

from hypothesis import strategies as st

from hybridsim.models import AttentionSpec, LatentSpec, LayerSpec, MlpSpec, ModelSpec, MoeSpec
from hybridsim.models.recurrent import recurrent

widths = st.sampled_from([4, 8, 16, 32])
any_window = st.none() | st.integers(1, 50)


@st.composite
def attentions(draw, windows=any_window):
    latent = draw(st.none() | st.builds(
        LatentSpec, widths, widths, widths, widths, st.none() | widths
    ))  # fmt: skip
    kv_heads = draw(st.sampled_from([1, 2, 4, 8]))
    return AttentionSpec(
        8, kv_heads, draw(widths), draw(windows), latent, draw(st.booleans()),
        draw(st.booleans()), draw(st.booleans()),
    )  # fmt: skip


@st.composite
def recurrents(draw):
    kind = draw(st.sampled_from(["gated_deltanet", "kda", "mamba2", "mamba1", "lightning"]))
    kernel = draw(st.sampled_from([0, 2, 4]))
    if kind == "mamba1":
        return recurrent(kind, 1, 8 * draw(widths), draw(widths), 1, kernel, dt_rank=draw(widths))
    equal = kind in ("kda", "lightning")
    key_heads = 8 if equal else draw(st.sampled_from([1, 2, 4, 8]))
    key_dim = draw(widths)
    value_dim = key_dim if equal else draw(widths)
    return recurrent(kind, key_heads, 8, key_dim, value_dim, 0 if kind == "lightning" else kernel)


moes = st.builds(
    MoeSpec, st.sampled_from([4, 8, 16]), st.integers(1, 4), widths.map(lambda w: 8 * w),
    st.sampled_from([0, 32]), st.booleans(), st.booleans(), st.booleans(),
)  # fmt: skip
mlps = st.builds(MlpSpec, widths.map(lambda w: 8 * w), st.booleans())


@st.composite
def models(draw, attention=attentions()):  # noqa: B008
    """One to three layers of each kind in random order, at least one of them with attention."""
    ffns = draw(st.lists(mlps | moes | st.none(), min_size=3, max_size=3))
    mixers = [draw(attention), draw(recurrents() | attention), draw(recurrents() | st.none())]
    pairs = zip(mixers, ffns, strict=True)
    layers = tuple(LayerSpec(mixer, ffn) for mixer, ffn in pairs if mixer or ffn)
    return ModelSpec("random", layers, draw(widths), draw(widths), draw(st.booleans()))
