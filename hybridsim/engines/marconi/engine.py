"""The adapter: requests in, records out."""

from collections.abc import Sequence

from hybridsim.engines.marconi.block_tree import BlockCache
from hybridsim.engines.marconi.cache import MarconiCache
from hybridsim.engines.marconi.eviction import FlopAware, LeafLRU
from hybridsim.engines.marconi.served import Cache
from hybridsim.engines.marconi.tuner import TunedCache
from hybridsim.errors import UserError, unknown_name
from hybridsim.models.marconi import MarconiFormulas
from hybridsim.models.spec import ModelSpec
from hybridsim.records import RequestRecord
from hybridsim.request import Request

POLICIES: Sequence[str] = ("v1", "v2", "v3", "vllm_plus")
VARIANTS: Sequence[str] = ("artifact", "corrected")


class MarconiServer:
    """Serves requests one after another from `capacity_bytes`, shared by KV and states.

    policy: `v1` leaf LRU (SGLang+), `v2` alpha tuned on a bootstrap window of `multiplier` times
    the requests before the first eviction, `v3` fixed `alpha`, `vllm_plus` a state for each 32
    tokens. variant: `artifact` copies two slips of the published code, `corrected` has neither;
    it concerns v2 and v3.
    `held_bytes`: what is kept after each request served.
    """

    def __init__(
        self,
        capacity_bytes: int,
        formulas: MarconiFormulas,
        policy: str = "v3",
        *,
        alpha: float = 1.0,
        variant: str = "corrected",
        multiplier: int = 5,
    ) -> None:
        _check(policy, variant, alpha, multiplier)
        self.formulas = formulas
        self.peak_kv_bytes = 0
        self.peak_state_bytes = 0
        self.held_bytes: list[int] = []
        self.cache: Cache

        def flop_aware(alpha: float) -> MarconiCache:
            eviction = FlopAware(formulas, alpha, copies_slips=variant == "artifact")
            return MarconiCache(capacity_bytes, formulas, eviction)

        if policy == "v1":
            self.cache = MarconiCache(capacity_bytes, formulas, LeafLRU(formulas))
        elif policy == "v2":
            self.cache = TunedCache(flop_aware, multiplier)
        elif policy == "v3":
            self.cache = flop_aware(alpha)
        else:
            self.cache = BlockCache(capacity_bytes, formulas)

    @property
    def tuned_alpha(self) -> float | None:
        """The alpha that v2 settled on; None before that, and for the others."""
        return self.cache.alpha if isinstance(self.cache, TunedCache) else None

    def serve(self, request: Request) -> RequestRecord:
        """Look the prompt up, then insert prompt and output. Prompt and output are kept whole."""
        served = self.cache.serve(request.prompt, request.output)
        kv_bytes = self.cache.num_tokens * self.formulas.kv_bytes_per_token
        state_bytes = self.cache.num_states * self.formulas.state_bytes
        self.peak_kv_bytes = max(self.peak_kv_bytes, kv_bytes)
        self.peak_state_bytes = max(self.peak_state_bytes, state_bytes)
        self.held_bytes.append(kv_bytes + state_bytes)
        return RequestRecord(
            request.request_id,
            request.session_id,
            request.num_prompt_tokens,
            request.num_output_tokens,
            num_match_tokens=served.num_match_tokens,
            num_hit_tokens=served.num_hit_tokens,
            hit_source=served.hit_source,
            num_evicted_tokens=served.num_evicted_tokens,
            num_evicted_states=served.num_evicted_states,
            num_checkpoints=served.num_added_states,
        )

    def check(self) -> None:
        """Raise AssertionError if a sum over the tree does not match its counter."""
        self.cache.check()


def formulas_for(model: ModelSpec, place: str = "model") -> MarconiFormulas:
    """The artifact's formulas for a model of its kind. UserError for any other model."""
    kinds = {layer.kind for layer in model.recurrent_layers}
    if kinds != {"marconi_mamba"} or not model.attention_layers:
        raise UserError(
            place, f"{model.name!r} is not allowed with engine marconi, whose formulas are for its "
            "own Mamba hybrids; allowed: marconi-7b, or an inline model of marconi_mamba layers"
        )  # fmt: skip
    formulas = MarconiFormulas(
        width=model.hidden,
        state=model.recurrent_layers[0].key_dim,
        num_ssm=len(model.recurrent_layers),
        num_attention=len(model.attention_layers),
        num_mlp=len(model.ffn_layers),
    )
    ours = (formulas.kv_bytes_per_token, formulas.state_bytes)
    if ours != (model.kv_bytes_per_token, model.state_bytes):
        raise UserError(
            place, f"{model.name!r} holds {model.kv_bytes_per_token} and {model.state_bytes} bytes "
            f"(KV a token, a state), but engine marconi counts {ours[0]} and {ours[1]}; allowed: "
            "one state of hidden x n a layer, and as many KV heads as query heads"
        )  # fmt: skip
    return formulas


def _check(policy: str, variant: str, alpha: float, multiplier: int) -> None:
    if policy not in POLICIES:
        raise unknown_name("engine.policy", policy, list(POLICIES))
    if variant not in VARIANTS:
        raise unknown_name("engine.variant", variant, list(VARIANTS))
    if not 0 <= alpha < float("inf"):
        raise UserError("engine.alpha", f"{alpha} is not allowed; at least 0")
    if multiplier < 1:
        raise UserError("engine.multiplier", f"{multiplier} is not allowed; at least 1")
