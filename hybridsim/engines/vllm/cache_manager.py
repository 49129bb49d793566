"""All groups of one model over one pool: look up, admit, allocate, cache, free.

It decides nothing about which request runs or how long a chunk is.
"""

from hybridsim.engines.vllm.align_group import AlignGroup
from hybridsim.engines.vllm.align_group_027 import AlignGroup027
from hybridsim.engines.vllm.block_pool import BlockPool
from hybridsim.engines.vllm.groups import Demand, Group
from hybridsim.engines.vllm.layout import Layout
from hybridsim.engines.vllm.lookup import Hit, Lookup
from hybridsim.engines.vllm.options import VLLMOptions
from hybridsim.engines.vllm.sequence import Sequence
from hybridsim.engines.vllm.state_groups import StateGroup

NO_HIT = Hit()


class CacheManager:
    """Block tables of all groups; attention groups come first, as ids and in every order."""

    def __init__(self, layout: Layout, options: VLLMOptions, num_blocks: int) -> None:
        self.layout = layout
        self.options = options
        attention = tuple(range(layout.num_attention_groups))
        states = tuple(range(len(attention), layout.num_groups))
        self.pool = BlockPool(
            num_blocks, layout.num_groups, caching=options.caching, state_groups=states
        )
        self.pool.reuses_uncached_first = options.version != "0.27.1"
        marked_all = options.drops and not options.eagle_group
        self.groups = [self._attention_group(group) for group in attention]
        self.groups += [self._state_group(group, marked_all) for group in states]
        self.lookup = Lookup(
            pool=self.pool,
            attention_groups=attention,
            state_groups=states,
            block_size=layout.block_size,
            unit=layout.unit,
            partial_hits=layout.partial_hits,
            drops_attention=options.drops,
            reads_whole_prompt=options.version != "0.27.1",
        )
        self.watermark_blocks = int(options.watermark * num_blocks)
        self._late_tokens = max(0, options.prefill_lookahead_tokens - 1)
        if options.version == "0.27.1":
            self._late_tokens = 0

    def _attention_group(self, group_id: int) -> Group:
        layout, options = self.layout, self.options
        group = Group(group_id, layout.block_size, layout.unit, self.pool)
        group.use_drop = options.drops
        whole_prompt = group.use_drop or options.version == "0.27.1"
        group.tail_slack_tokens = 0 if whole_prompt else 1
        return group

    def _state_group(self, group_id: int, use_drop: bool) -> StateGroup:
        layout, options = self.layout, self.options
        kinds = {"0.33.0": AlignGroup, "0.27.1": AlignGroup027}
        kind = kinds[options.version] if options.mamba_mode == "align" else StateGroup
        fine = layout.partial_hits and options.version == "0.33.0"
        group = kind(
            group_id,
            layout.mamba_block_size,
            layout.unit,
            self.pool,
            num_draft_blocks=options.spec_k,
            retention=options.retention_interval,
            retention_grid=layout.unit if fine else layout.block_size,
        )
        group.use_drop = use_drop
        group.keeps_below_fork = use_drop and options.version == "0.33.0"
        group.drops = options.drops
        group.lookahead_tokens = options.lookahead_tokens
        group.records = group_id == layout.num_attention_groups
        if isinstance(group, AlignGroup):
            group.checkpoint_grid = layout.checkpoint_grid
            group.saves_forks = self.saves_forks
        return group

    @property
    def saves_forks(self) -> bool:
        """Whether a state at a fork inside a block is cached."""
        options = self.options
        single_module = options.prefill_lookahead_tokens <= 1
        wanted = options.shared_prefix_checkpoint and options.version == "0.33.0"
        return wanted and options.spec_k > 0 and self.layout.partial_hits and single_module

    def start_step(self) -> None:
        """States cached in the last step can be read from now on."""
        for group in self.groups:
            group.start_step()

    def find(self, seq: Sequence) -> Hit:
        """What the request could reuse now. Changes nothing."""
        return self.lookup.find(seq) if self.options.caching else NO_HIT

    def owner_of(self, seq: Sequence, hit: Hit) -> int:
        """Index of the request that first cached what the hit resumes from; -1 without a hit."""
        if not hit.num_hit_tokens:
            return -1
        group = self.layout.num_attention_groups if self.layout.num_mamba_groups else 0
        return self.pool.owner[group][seq.key_at(hit.num_hit_tokens)]

    def allocate(
        self,
        seq: Sequence,
        num_new_tokens: int,
        hit: Hit = NO_HIT,
        *,
        is_admission: bool = False,
        is_busy: bool = False,
    ) -> bool:
        """Make room for the next chunk and cache what it will compute; False when room is missing.

        is_admission: the request comes from the waiting queue; then its whole prompt must fit
        (`reserve_full_isl`) and, when the engine is busy, the watermark must stay free. A refusal
        still gives back blocks that the request needs no more.
        """
        self.pool.current_owner = seq.index
        limit = self.options.max_model_len
        start = min(seq.num_computed_tokens + hit.num_hit_tokens, limit)
        spare = self.watermark_blocks if is_admission and is_busy else 0
        if is_admission and self.options.reserve_full_isl:
            whole = min(seq.num_tokens, limit)
            gate = Demand(whole, whole, start, True, self._prefill_end(seq))
            if self._num_needed(seq, gate, hit) + spare > self.pool.num_free:
                return False
        end = start + num_new_tokens
        demand = Demand(
            min(end + self.options.spec_k, limit), end, start, False, self._prefill_end(seq)
        )
        for group in self.groups:
            group.retire(seq, start)
        if self._num_needed(seq, demand, hit) + spare > self.pool.num_free:
            return False
        if hit.num_hit_tokens:
            for group, blocks in zip(self.groups, hit.blocks, strict=True):
                group.adopt(seq, blocks, hit.num_hit_tokens)
        for group in self.groups:
            group.allocate(seq, demand)
        self.commit(seq, min(end, seq.num_tokens))
        return True

    def _prefill_end(self, seq: Sequence) -> int:
        return seq.prefill_end if self.options.retention_interval == 0 else 0

    def _num_needed(self, seq: Sequence, demand: Demand, hit: Hit) -> int:
        hits = hit.blocks or [[]] * len(self.groups)
        return sum(
            group.num_needed(seq, demand, blocks)
            for group, blocks in zip(self.groups, hits, strict=True)
        )

    def commit(self, seq: Sequence, num_tokens: int) -> None:
        """Cache what the first `num_tokens` tokens allow (0.33.0: hashed before it is computed)."""
        if not self.options.caching:
            return
        boundaries = self._replay_boundaries(seq.num_prompt_tokens)
        for group in self.groups:
            group.commit(seq, self._num_cacheable(group, num_tokens), boundaries)

    def _replay_boundaries(self, num_prompt_tokens: int) -> tuple[int, ...]:
        """Positions at which the same prompt, or a longer one, can resume."""
        if not self.options.drops or self.options.version == "0.27.1":
            return (num_prompt_tokens - 1,)
        size = self.layout.block_size
        resend = (num_prompt_tokens - 1) // size * size
        longer = num_prompt_tokens // size * size
        return (max(resend - size, 0), max(longer - size, 0))

    def _num_cacheable(self, group: Group, num_tokens: int) -> int:
        """Tokens worth hashing: those a hit can end at, and one block more where it is dropped."""
        size = self.layout.block_size
        fine, late = self.layout.partial_hits, self._late_tokens
        aligned = num_tokens if fine else num_tokens // size * size
        if not group.use_drop or aligned <= 0:
            return aligned
        final = max(0, num_tokens - late)
        return min(final, (final if fine else final // size * size) + group.block_size)

    def take_copies(self) -> None:
        """End of a step's scheduling: release the blocks kept for its copies."""
        self.pool.free([block for group in self.groups for block in group.take_copies()])

    def release(self, seq: Sequence) -> None:
        """Give back everything the request holds, attention first."""
        for group in self.groups:
            group.release(seq)

    def check(self) -> None:
        """Raise AssertionError if blocks, queue, references and hashes disagree."""
        self.pool.check(blocks for group in self.groups for blocks in group.held_blocks())
