"""What a user asks before start, in words: block size and why, shortest hit, concurrency."""

from hybridsim.engines.vllm.layout import Layout
from hybridsim.engines.vllm.options import VLLMOptions
from hybridsim.units import format_bytes


def describe(layout: Layout, options: VLLMOptions, num_blocks: int) -> list[tuple[str, str]]:
    """Label and text of each line. `num_blocks` includes the null block."""
    lines = [
        ("block size", f"{layout.block_size} tokens: {_why(layout, options)}"),
        ("groups", _groups(layout)),
        ("bytes per block", f"{layout.bytes_per_block} ({format_bytes(layout.bytes_per_block)})"),
        ("padding of a state", f"{layout.padding_pct} %"),
        ("blocks", f"{num_blocks}, of which {num_blocks - 1} usable"),
        ("shortest reusable prefix", _shortest(layout, options)),
        ("states per running request", _states(layout, options)),
        (
            "concurrency at max_model_len",
            f"{layout.max_concurrency(num_blocks):.2f} requests of {options.max_model_len} tokens, "
            f"{layout.max_blocks_per_request} blocks each",
        ),
        ("KV tokens of one request alone", _alone(layout, options, num_blocks)),
        ("binds first", _binding(layout, options, num_blocks)),
    ]
    if layout.max_blocks_per_request > num_blocks:
        lines.append(("startup", "refused: one request of max_model_len does not fit"))
    return lines


def _why(layout: Layout, options: VLLMOptions) -> str:
    if options.block_size is not None:
        return "as set"
    if not layout.num_mamba_groups:
        return "the smallest the backend takes"
    return (
        f"the fewest multiples of {layout.alignment_tokens} tokens whose KV "
        f"({layout.kv_bytes_per_token} bytes a token and layer) covers a state of "
        f"{layout.state_bytes} bytes"
    )


def _groups(layout: Layout) -> str:
    text = (
        f"{layout.num_attention_groups} of attention, {layout.num_mamba_groups} of states, "
        f"{layout.group_size} layers each"
    )
    padded = layout.num_padded_layers
    return f"{text} ({padded} places padded)" if padded else text


def _shortest(layout: Layout, options: VLLMOptions) -> str:
    if not options.caching:
        return "none: prefix caching is off"
    grid, least = shortest_hit(layout, options)
    return f"{grid} tokens (prompts from {least} tokens on can hit)"


def shortest_hit(layout: Layout, options: VLLMOptions) -> tuple[int, int]:
    """(fewest tokens of a hit, fewest tokens of a prompt that can have one).

    One token is always computed, or as many as a hash looks ahead. A drop costs one grid unit more,
    which in 0.33.0 may be the prompt's last.
    """
    grid = layout.unit if layout.partial_hits else layout.block_size
    if not options.drops:
        return grid, grid + max(1, options.lookahead_tokens)
    return grid, 2 * grid + int(options.version == "0.27.1")


def _states(layout: Layout, options: VLLMOptions) -> str:
    groups, k = layout.num_mamba_groups, options.spec_k
    if not groups:
        return "none: no recurrent layers"
    if options.mamba_mode == "all":
        return f"one per block of context in each of {groups} groups"
    most = {"align": 2, "none": 1}[options.mamba_mode] + k + int(layout.checkpoint_grid is not None)
    return f"up to {most} blocks in each of {groups} groups"


def _alone(layout: Layout, options: VLLMOptions, num_blocks: int) -> str:
    """Tokens that fit when one request has the pool to itself."""
    in_length = -(-options.max_model_len // layout.block_size) * layout.num_attention_groups
    usable = num_blocks - 1
    if options.mamba_mode == "all":
        per_position = layout.num_groups
        blocks = (usable - options.spec_k * layout.num_mamba_groups) // per_position
    else:
        blocks = (
            usable - (layout.max_blocks_per_request - in_length)
        ) // layout.num_attention_groups
    tokens = max(0, min(options.max_model_len, blocks * layout.block_size))
    bound = "max_model_len" if tokens == options.max_model_len else "the pool"
    return f"{tokens} (bound by {bound})"


def _binding(layout: Layout, options: VLLMOptions, num_blocks: int) -> str:
    concurrency = layout.max_concurrency(num_blocks)
    if concurrency >= options.max_num_seqs:
        return f"max_num_seqs = {options.max_num_seqs}, also for the longest requests"
    return (
        f"the pool: {concurrency:.2f} longest requests, fewer than max_num_seqs = "
        f"{options.max_num_seqs}"
    )
