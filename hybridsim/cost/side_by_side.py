"""What several chunks of one step cost together, from tables of equal or of single chunks."""

from collections.abc import Sequence

from hybridsim.cost.base import PrefillChunk
from hybridsim.cost.tables import Table

# Kernels work on whole blocks of 64 tokens, recurrences and attention's queries alike; within the
# first block times hardly differ, and the least that is measured has 16.
_BLOCK_TOKENS, _LEAST_TOKENS = 64, 16


def whole_blocks(num_tokens: int) -> int:
    """Tokens that a chunk costs: whole blocks, but for one within the first block."""
    if num_tokens <= _BLOCK_TOKENS:
        return max(num_tokens, _LEAST_TOKENS)
    return -(-num_tokens // _BLOCK_TOKENS) * _BLOCK_TOKENS


def scans_s(table: Table, lengths: Sequence[int]) -> float:
    """Seconds of recurrences over chunks of so many tokens, side by side.

    table: (tokens of each, number of chunks) -> seconds, with increments as `rising_increments`
    makes them, so that neither a longer chunk nor one more is ever cheaper. All run until the
    shortest ends, then the rest go on, and so forth: with n still running, tokens from a to b of
    each take table(b, n) - table(a, n).
    """
    total, done = 0.0, 0
    ordered = sorted(map(whole_blocks, lengths))
    for ended, length in enumerate(ordered):
        running = len(ordered) - ended
        total += table.row(length).at(running)
        if done:
            total -= table.row(done).at(running)
        done = length
    return total


def attentions_s(alone: Table, four: Table, chunks: Sequence[PrefillChunk]) -> float:
    """Seconds of attention over chunks that share the GPU.

    Both tables: (new tokens, prefix tokens) -> seconds, of one chunk and of four equal ones. A
    chunk takes at least as long as alone; beside others it adds a quarter of what four such take.
    """
    start_s = four.seconds[0][0]
    longest_s = sum_s = 0.0
    for chunk in chunks:
        new, prefix = whole_blocks(chunk.num_new_tokens), chunk.num_prefix_tokens
        longest_s = max(longest_s, alone.power_row(new).at(prefix))
        sum_s += (four.power_row(new).at(prefix) - start_s) / 4
    return longest_s if len(chunks) == 1 else max(longest_s, start_s + sum_s)
