"""What a user may set for the vLLM engines. It knows no model, no pool and no request."""

from dataclasses import dataclass
from typing import Literal

from hybridsim.errors import UserError, shorten, unknown_name

Version = Literal["0.33.0", "0.27.1"]
VERSIONS: tuple[str, ...] = ("0.33.0", "0.27.1")
MODES = {"0.33.0": ("align", "none"), "0.27.1": ("align", "none", "all")}
DTYPES = ("bf16", "fp16", "fp32", "fp8")


_MOST, _MOST_DRAFTS = 2**40, 1024  # beyond any engine, and byte counts still fit 64 bits
_DEFAULT_RETENTION = ("retention", "default")


@dataclass(frozen=True, kw_only=True)
class VLLMOptions:
    """Settings of one engine; names are those of the conformance driver's configuration.

    version: engine release whose rules apply.
    mamba_mode: `align` saves states at chunk ends, `none` turns prefix caching off, `all` (0.27.1
        only) saves a state at every block boundary.
    block_size: tokens of a block; None derives it from the model (see `layout`).
    user_block_size: the smallest alignment of a derived block, in tokens.
    retention: None keeps every saved state, 0 only those a replay or a fork can use, N > 0 (a
        multiple of the block) also those at multiples of N tokens. `default` is the release's own:
        0 in 0.33.0, None in 0.27.1.
    prefix_match_unit: hash every so many tokens instead of every block (a divisor of the block).
    internal_checkpoint: alignment in tokens at which the backend can export a state inside a
        chunk (64 FlashInfer GDN, 1 Mamba2 mixer); None when it cannot.
    spec_k: draft tokens per step; spec_accept: how many of them are accepted (the rest rejected).
    eagle_drop: drop the last matched block for the drafter. None means the engine's default
        (0.33.0: no, its hashes look ahead instead; 0.27.1 always drops).
    hash_lookahead: tokens after a block that its hash covers too (0.33.0). None means the engine's
        default: 1 with drafts and no drop, else 0.
    eagle_group: the drafter's attention layers mark only the attention groups (else all groups).
    reserve_full_isl: admit a request only when its whole prompt fits now.
    shared_prefix_checkpoint: save a state at a fork inside a block (needs drafts and a unit).
    kv_dtype, ssm_dtype: number formats of keys and values and of the recurrent state (None: the
        model's own).
    num_blocks: pool size in blocks, the null block included; None takes it from the memory.
    check_startup: refuse a pool in which one request of max_model_len cannot run, as vLLM does.
    abort_stuck: give a request up that can never be admitted; False leaves it at the queue's head,
        where it blocks all that follow, as the engine does.
    junction: end a chunk where a sibling was seen to fork. False models builds before June 2026.
    """

    version: Version = "0.33.0"
    mamba_mode: str = "align"
    block_size: int | None = None
    user_block_size: int = 16
    max_num_batched_tokens: int = 8192
    max_num_seqs: int = 128
    max_model_len: int = 32768
    retention: int | None | Literal["default"] = "default"
    prefix_match_unit: int | None = None
    internal_checkpoint: int | None = None
    spec_k: int = 0
    spec_accept: int = 0
    eagle_drop: bool | None = None
    hash_lookahead: int | None = None
    prefill_lookahead: int | None = None
    eagle_group: bool = True
    draft_layers: int = 1
    reserve_full_isl: bool = True
    shared_prefix_checkpoint: bool = False
    watermark: float = 0.0
    long_prefill_token_threshold: int = 0
    sched_policy: str = "fcfs"
    kv_dtype: str | None = None
    ssm_dtype: str | None = None
    num_blocks: int | None = None
    check_startup: bool = False
    abort_stuck: bool = False
    junction: bool = True

    def __post_init__(self) -> None:
        """Refuse impossible settings; errors name the key below `engine.`."""
        if self.version not in VERSIONS:
            raise unknown_name("engine.version", self.version, list(VERSIONS))
        if self.mamba_mode not in MODES[self.version]:
            raise unknown_name("engine.mamba_mode", self.mamba_mode, list(MODES[self.version]))
        if self.sched_policy not in ("fcfs", "priority"):
            raise unknown_name("engine.sched_policy", self.sched_policy, ["fcfs", "priority"])
        for key in ("kv_dtype", "ssm_dtype"):
            value = getattr(self, key)
            if value is not None and value not in DTYPES:
                raise unknown_name(f"engine.{key}", value, list(DTYPES))
        self._check_booleans()
        self._check_numbers()
        self._check_combinations()

    def _check_booleans(self) -> None:
        always = (
            "eagle_group", "reserve_full_isl", "shared_prefix_checkpoint", "check_startup",
            "abort_stuck", "junction",
        )  # fmt: skip
        for key in (*always, "eagle_drop"):
            value = getattr(self, key)
            if not isinstance(value, bool) and (key in always or value is not None):
                raise UserError(f"engine.{key}", f"{value!r} is not allowed; allowed: true, false")

    def _check_numbers(self) -> None:
        positive = ("user_block_size", "max_num_batched_tokens", "max_num_seqs", "max_model_len")
        optional = ("block_size", "prefix_match_unit", "internal_checkpoint", "num_blocks")
        natural = ("spec_k", "spec_accept", "draft_layers", "long_prefill_token_threshold")
        from_none = ("retention", "hash_lookahead", "prefill_lookahead")
        for key in (*positive, *optional, *natural, *from_none):
            value, least = getattr(self, key), 0 if key in natural + from_none else 1
            may_be_none = key in optional + from_none
            if (value is None and may_be_none) or (key, value) == _DEFAULT_RETENTION:
                continue
            most = _MOST_DRAFTS if key in ("spec_k", "draft_layers") else _MOST
            if type(value) is not int or not least <= value <= most:
                raise UserError(
                    f"engine.{key}",
                    f"{shorten(repr(value))} is not allowed; "
                    f"allowed: an integer >= {least} and <= {most}",
                )
        is_number = isinstance(self.watermark, int | float) and self.watermark is not True
        if not is_number or not 0 <= self.watermark < 1:
            raise UserError("engine.watermark", f"{self.watermark!r} is not in [0, 1)")

    def _check_combinations(self) -> None:
        if self.version == "0.27.1" and self.hash_lookahead:
            raise UserError("engine.hash_lookahead", "0.27.1 has no lookahead hashes; allowed: 0")
        if self.version == "0.27.1" and self.internal_checkpoint:
            raise UserError("engine.internal_checkpoint", "0.27.1 has none; allowed: null")
        if self.version == "0.27.1" and self.eagle_drop is False and self.spec_k:
            raise UserError("engine.eagle_drop", "0.27.1 always drops with drafts; allowed: true")
        if self.num_blocks is not None and self.num_blocks < 2:
            raise UserError("engine.num_blocks", f"{self.num_blocks} is not allowed; allowed: >= 2")
        if self.max_num_batched_tokens < self.max_num_seqs:
            raise UserError(
                "engine.max_num_batched_tokens",
                f"{self.max_num_batched_tokens} is less than max_num_seqs = {self.max_num_seqs}; "
                "allowed: at least that",
            )
        if self.eagle_drop and self.hash_lookahead:
            raise UserError("engine.eagle_drop", "lookahead hashes need no drop; set one of them")

    @property
    def caching(self) -> bool:
        return self.mamba_mode != "none"

    @property
    def retention_interval(self) -> int | None:
        """`retention` with the release's default filled in."""
        if self.retention == "default":
            return 0 if self.version == "0.33.0" else None
        return self.retention

    @property
    def drops(self) -> bool:
        """Whether a lookup gives up the last matched block for the drafter."""
        if not self.spec_k:
            return False
        return self.version == "0.27.1" or bool(self.eagle_drop)

    @property
    def lookahead_tokens(self) -> int:
        """Tokens after a block that its hash covers too."""
        if self.version == "0.27.1":
            return 0
        if self.hash_lookahead is not None:
            return self.hash_lookahead
        return int(self.spec_k > 0 and self.eagle_drop is None)

    @property
    def prefill_lookahead_tokens(self) -> int:
        """Prompt tokens past a chunk that the drafter reads (1 unless multi-module MTP)."""
        if self.prefill_lookahead is not None:
            return self.prefill_lookahead
        return 1 if self.spec_k else 0
