"""How requests decode: tokens a step with drafts, the end of an output, steps to leap over.

It touches no block; it only knows at which positions blocks change.
"""

from hybridsim.engines.vllm.options import VLLMOptions
from hybridsim.engines.vllm.sequence import Sequence
from hybridsim.engines.vllm.step import Step


class DecodePace:
    """Decode steps of one engine.

    A step computes 1 + spec_k positions of a request and keeps 1 + accepted of them.
    """

    def __init__(self, options: VLLMOptions, block_size: int) -> None:
        self._options = options
        self._old = options.version == "0.27.1"
        self._block_size = block_size
        self._num_kept = 1 + min(options.spec_k, options.spec_accept)
        # Steps at offsets size - 1 (caches a block), 0 (allocates), 1 (retires a state) and at the
        # lookahead (hashes late) act; drafts reach further in both directions.
        k, ahead = options.spec_k, options.lookahead_tokens
        self._quiet_from = 2 + 2 * k + ahead
        self._quiet_until = block_size - 1 - (2 * k + ahead + 3 if k else 0)

    def first_tokens(self, step: Step, seq: Sequence, start: int) -> tuple[int, int]:
        """(tokens, drafts among them) left to compute after a hit; (0, 0) when it must wait.

        A request with one token left is padded to the shape of a decode with drafts.
        """
        k, num_new = self._options.spec_k, seq.num_tokens - start
        if not k or num_new != 1 or not self._pads(step, start):
            return num_new, 0
        fits = start + 1 + k + int(not self._old) <= self._options.max_model_len
        if not fits:
            return (0, 0) if self._old else (1, 0)
        return (0, 0) if 1 + k > step.budget else (1 + k, k)

    def _pads(self, step: Step, start: int) -> bool:
        resumes = start > 0 and not self._old
        return not step.has_prefill and (step.has_running or resumes)

    def append_output(self, seq: Sequence, drafts: int) -> None:
        """Append what a step with `drafts` produced; the request may finish."""
        most = self._options.max_model_len
        left = seq.num_output_tokens - seq.num_generated_tokens
        produced = max(min(1 + min(drafts, self._options.spec_accept), left), 1)
        appended = min(produced, max(most - seq.num_tokens, 1))
        seq.num_computed_tokens -= drafts - (produced - 1) if drafts else 0
        seq.num_tokens += appended
        if not self._old:
            seq.num_computed_tokens -= produced - appended
        is_done = seq.num_generated_tokens >= seq.num_output_tokens
        seq.is_finished = is_done or seq.num_tokens >= most

    def is_steady(self, step: Step, running: list[Sequence]) -> bool:
        """Whether every running request takes the decode step that it will repeat."""
        width = 1 + self._options.spec_k
        return len(step.num_new_tokens) == len(running) and all(
            num_tokens == width and seq.num_computed_tokens >= seq.prefill_end
            for seq, num_tokens in step.num_new_tokens.items()
        )

    def steps_to_event(self, seq: Sequence) -> int:
        """Coming decode steps in which no block of the request changes and it does not end."""
        if seq.num_computed_tokens < seq.prefill_end or seq.is_prefilling:
            return 0
        offset = seq.num_computed_tokens % self._block_size
        if offset < self._quiet_from:
            return 0
        margin = self._block_size - self._quiet_until
        left = seq.num_output_tokens - seq.num_generated_tokens - margin
        room = self._options.max_model_len - seq.num_tokens - margin
        return min(self._quiet_until - offset, left, room) // self._num_kept

    def advance(self, seq: Sequence, num_steps: int) -> None:
        """Take that many decode steps at once."""
        if seq.num_preemptions:
            width = 1 + self._options.spec_k
            starts = range(seq.num_computed_tokens, 2**62, self._num_kept)
            seq.chunks += [(start, width) for start in starts[:num_steps]]
        seq.num_tokens += num_steps * self._num_kept
        seq.num_computed_tokens += num_steps * self._num_kept
