"""How a model's layers become blocks: block size, groups, bytes a block, the startup check.

The formula is the engine's hybrid alignment rule; it knows no request and no pool.
"""

from dataclasses import dataclass
from math import lcm

from hybridsim.engines.vllm.options import VLLMOptions
from hybridsim.errors import UserError

MLA_ALIGNMENT_TOKENS = 128


@dataclass(frozen=True)
class Geometry:
    """What the layout needs of a model, per layer and per tensor-parallel rank.

    kv_bytes_per_token: key and value bytes of one token in one attention layer.
    state_bytes: recurrent state of one layer (convolution and matrix) without draft rows.
    draft_row_bytes: bytes that one draft token adds to it (one convolution row; 0 where the
        convolution cache does not grow).
    """

    num_attention_layers: int
    num_recurrent_layers: int
    kv_bytes_per_token: int
    state_bytes: int = 0
    draft_row_bytes: int = 0
    is_mla: bool = False


@dataclass(frozen=True)
class Layout:
    """The memory plan of one engine; every group's page has the same size.

    block_size: tokens of an attention block (and of a state block, except in mode none).
    mamba_block_size: tokens that one state block stands for.
    page_bytes: one layer's share of a block; bytes_per_block: all layers of one group.
    unit: tokens between two hashes; partial_hits: whether a hit may end inside a block.
    """

    kv_bytes_per_token: int
    state_bytes: int
    alignment_tokens: int
    block_size: int
    mamba_block_size: int
    page_bytes: int
    group_size: int
    num_attention_groups: int
    num_mamba_groups: int
    attention_layers_per_group: tuple[int, ...]
    mamba_layers_per_group: tuple[int, ...]
    unit: int
    partial_hits: bool
    checkpoint_grid: int | None
    num_padded_layers: int
    max_blocks_per_request: int

    @property
    def bytes_per_block(self) -> int:
        return self.group_size * self.page_bytes

    @property
    def num_groups(self) -> int:
        return self.num_attention_groups + self.num_mamba_groups

    @property
    def padding_pct(self) -> float:
        """Part of a state page that holds nothing, in percent of the state."""
        if not self.state_bytes:
            return 0.0
        return round(100 * (self.page_bytes - self.state_bytes) / self.state_bytes, 2)

    def num_blocks(self, memory_bytes: int) -> int:
        """Blocks that fit, the null block included."""
        return memory_bytes // self.bytes_per_block

    def max_concurrency(self, num_blocks: int) -> float:
        """Requests of max_model_len that fit at once, as the engine logs it."""
        return num_blocks / self.max_blocks_per_request


def _ceil_div(a: int, b: int) -> int:
    return -(-a // b)


def _block_size(geometry: Geometry, options: VLLMOptions, state_bytes: int) -> tuple[int, int]:
    """(alignment, block size) in tokens: the fewest aligned tokens whose KV covers a state."""
    align = max(16, options.user_block_size, MLA_ALIGNMENT_TOKENS if geometry.is_mla else 0)
    if options.mamba_mode == "align" and options.internal_checkpoint:
        align = lcm(align, options.internal_checkpoint)
    if options.block_size is not None:
        return align, options.block_size
    if not geometry.num_recurrent_layers:
        return align, align
    return align, align * _ceil_div(state_bytes, align * geometry.kv_bytes_per_token)


def group_layers(num_attention: int, num_recurrent: int) -> tuple[int, list[int], list[int]]:
    """(group size, layers per attention group, per state group).

    The smaller kind fills one group unless the kinds are close (less than 3 to 2), when the larger
    does; layer i of a kind goes to group i mod number of groups.
    """
    kinds = [n for n in (num_attention, num_recurrent) if n]
    low, high = min(kinds), max(kinds)
    size = high if high < 1.5 * low else low
    counts = []
    for layers in (num_attention, num_recurrent):
        num_groups = _ceil_div(layers, size)
        counts.append([len(range(g, layers, num_groups)) for g in range(num_groups)])
    return size, counts[0], counts[1]


def build_layout(geometry: Geometry, options: VLLMOptions) -> Layout:
    """The layout of a model under the given options. Raises UserError for impossible ones."""
    if geometry.num_attention_layers < 1:
        raise UserError("model", "the vLLM engines need at least one full-attention layer")
    k = options.spec_k
    state_bytes = geometry.state_bytes + k * geometry.draft_row_bytes
    align, block = _block_size(geometry, options, state_bytes)
    page = block * geometry.kv_bytes_per_token
    if options.block_size is not None:
        page = max(page, state_bytes)
    num_attention = geometry.num_attention_layers + (options.draft_layers if k else 0)
    size, attention, mamba = group_layers(num_attention, geometry.num_recurrent_layers)
    unit = _unit(options, block, hybrid=bool(mamba))
    partial = options.mamba_mode == "align" and bool(mamba) and unit < block
    return Layout(
        kv_bytes_per_token=geometry.kv_bytes_per_token,
        state_bytes=state_bytes,
        alignment_tokens=align,
        block_size=block,
        mamba_block_size=options.max_model_len if not options.caching else block,
        page_bytes=page,
        group_size=size,
        num_attention_groups=len(attention),
        num_mamba_groups=len(mamba),
        attention_layers_per_group=tuple(attention),
        mamba_layers_per_group=tuple(mamba),
        unit=unit,
        partial_hits=partial,
        checkpoint_grid=_checkpoint_grid(options, block),
        num_padded_layers=size * len(attention + mamba) - sum(attention) - sum(mamba),
        max_blocks_per_request=_blocks_per_request(options, block, len(attention), len(mamba)),
    )


def _unit(options: VLLMOptions, block: int, *, hybrid: bool) -> int:
    retention, unit = options.retention_interval, options.prefix_match_unit
    if options.caching and hybrid and retention and retention % block:
        raise UserError(
            "engine.retention",
            f"{retention} is not allowed; allowed: null, 0, multiples of the block size {block}",
        )
    if not options.caching or unit is None:
        return block
    if block % unit or (not hybrid and unit != block):
        raise UserError(
            "engine.prefix_match_unit", f"{unit} is not allowed; allowed: divisors of {block}"
        )
    return unit


def _checkpoint_grid(options: VLLMOptions, block: int) -> int | None:
    """Tokens between positions where the backend can export a state inside a chunk."""
    exported = options.internal_checkpoint
    if options.mamba_mode != "align" or not exported:
        return None
    if exported == 1:
        return 1
    return lcm(options.prefix_match_unit, exported) if options.prefix_match_unit else block


def _blocks_per_request(options: VLLMOptions, block: int, attention: int, mamba: int) -> int:
    k = options.spec_k
    in_length = _ceil_div(options.max_model_len, block)
    per_state_group = {
        "align": 2 + k + int(bool(options.internal_checkpoint)),
        "none": 1 + k,
        "all": in_length + k,
    }[options.mamba_mode]
    return in_length * attention + per_state_group * mamba


def check_startup(layout: Layout, options: VLLMOptions, num_blocks: int, place: str) -> None:
    """Raise UserError when one request of max_model_len needs more than the whole pool."""
    if layout.max_blocks_per_request > num_blocks:
        raise UserError(
            place,
            f"{num_blocks} blocks are too few: one request of max_model_len = "
            f"{options.max_model_len} tokens needs {layout.max_blocks_per_request}; allowed: more "
            f"memory ({layout.bytes_per_block} bytes a block) or a smaller max_model_len",
        )
