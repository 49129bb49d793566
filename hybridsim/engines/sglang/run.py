"""One request on its way through the engine: slots and pages it holds, states it hands over."""

from hybridsim.engines.content import Content
from hybridsim.engines.sglang.components import Insertion, TreeLock
from hybridsim.engines.sglang.decision import Death, Decision, EngineDied, Tracked
from hybridsim.engines.sglang.eviction import Evictor
from hybridsim.engines.sglang.insertion import insert
from hybridsim.engines.sglang.node import Kind
from hybridsim.engines.sglang.options import SGLangOptions
from hybridsim.engines.sglang.row import KVRow
from hybridsim.engines.sglang.tree import Tree
from hybridsim.records import HitSource


class RequestRun:
    """The running request. Every method that allocates may raise `EngineDied`.

    has_live_slot: the slot in which its state lives. num_track_slots: slots for states to hand
    over. tracked_at: position of the newest state in them, since the last handover.
    row: its KV.
    """

    def __init__(
        self,
        options: SGLangOptions,
        tree: Tree,
        evictor: Evictor,
        content: Content,
        num_prompt_tokens: int,
        priority: int,
        decision: Decision,
    ) -> None:
        self._options = options
        self._tree = tree
        self._pools = tree.pools
        self._evictor = evictor
        self._content = content
        self._priority = priority
        self._decision = decision
        self.num_prompt_tokens = num_prompt_tokens
        self.lock: TreeLock | None = None
        self.has_live_slot = False
        self.num_track_slots = 0
        self.tracked_at: int | None = None
        self.row = KVRow(options, tree.pools, evictor)
        self._num_counted = 0

    @property
    def num_slots(self) -> int:
        return self.has_live_slot + self.num_track_slots

    def note_peak(self) -> None:
        self._decision.peak_slots = max(self._decision.peak_slots, self.num_slots)

    # Lookup and admission

    def look_up(self) -> None:
        """Find the longest reusable prefix and take a slot for the copy of its state."""
        decision, tree = self._decision, self._tree
        limit = self.num_prompt_tokens - 1 if self._options.radix else 0
        match = tree.match(self._content, limit)
        decision.num_match_tokens = match.num_match_tokens
        decision.num_hit_tokens = match.num_hit_tokens
        self.row.start_at(match.num_hit_tokens)
        grid = self._options.grid_tokens
        branch = match.num_match_tokens // grid * grid
        decision.branch = branch if branch > match.num_hit_tokens else None
        if match.node.state.held:
            decision.hit_source = match.node.source
            if not self._pools.slots.take(1):
                pin = tree.lock(match.node)
                self._evictor.for_allocation(states=1)
                taken = self._pools.slots.take(1)
                tree.unlock(pin)
                if not taken:
                    raise EngineDied(Death.COPY_SLOT)
            self.has_live_slot = True
        self.lock = tree.lock(match.node)

    def give_up(self) -> None:
        """Undo `look_up`: the scheduler refuses the request."""
        assert self.lock is not None
        self._tree.unlock(self.lock)
        self.lock = None
        self._release_slots()

    def take_slots(self) -> None:
        """Take the slots that a request needs before its first chunk."""
        slots, options = self._pools.slots, self._options
        needed = (not self.has_live_slot) + options.num_track_slots
        if slots.num_free < needed:
            self._evict_states(needed - slots.num_free)
        if not self.has_live_slot:
            if not slots.take(1):
                raise EngineDied(Death.LIVE_SLOT)
            self.has_live_slot = True
        if not slots.take(options.num_track_slots):
            raise EngineDied(Death.TRACK_SLOTS)
        self.num_track_slots = options.num_track_slots

    def _evict_states(self, num_states: int) -> None:
        if self._options.radix:
            self._evictor.for_allocation(states=num_states)

    # States

    def track_prefill(self, start: int, end: int, num_chunks: int) -> None:
        """Note which state the prefill chunk `[start, end)` writes to a tracking slot.

        One state a chunk: at the last grid step counted from the chunk's own start, or at the
        branch point instead, when that lies on a state boundary inside the chunk.
        """
        options, branch = self._options, self._decision.branch
        if not options.extra_buffer or end - start < options.grid_tokens:
            return
        position = start + (end - start) // options.grid_tokens * options.grid_tokens
        # A chunk whose last model step is the tracked position can be asked for any earlier
        # position; otherwise positions up to the tracked one only.
        model_step = start + (end - start) // options.chunk_size * options.chunk_size
        limit = end if model_step == position else position + 1
        if (
            branch is not None
            and start < branch < limit
            and (branch - start) % options.state_chunk_tokens == 0
        ):
            position = branch
        self.tracked_at = position
        from_inside = position != end or position != model_step
        self._decision.tracked.append(Tracked(position, f"prefill{num_chunks}", from_inside))

    def track_decode(self, position: int) -> None:
        """A decode step has written the state at `position` to a tracking slot."""
        if self._options.lazy and self._pools.slots.take(1):
            # The second slot lives for this one step; without one the first is overwritten.
            self.num_track_slots += 1
            self.note_peak()
            self.num_track_slots -= 1
            self._pools.slots.give_back(1)
        self.tracked_at = position
        self._decision.tracked.append(Tracked(position, "decode"))

    def hand_over(self, num_tokens: int) -> None:
        """Let the tree have what the running request has computed: its first `num_tokens`.

        With a tracking buffer only up to the tracked state, and nothing when there is none.
        """
        options, slots = self._options, self._pools.slots
        if not options.radix:
            return
        position = self.tracked_at if options.extra_buffer else num_tokens
        if position is None:
            return
        if options.extra_buffer or not options.int8_ckpt:
            # Of a tracking buffer the new slot takes the place of the one handed over; without
            # one it holds the copy that is handed over.
            self._take_checkpoint_slot()
        if options.int8_ckpt:
            self._take_int8_slot()
            if options.extra_buffer:
                slots.give_back(1)
        position = min(position, num_tokens)
        self.row.slide(position - 1, self.tracked_at)
        if self._insert(position).state_was_there:
            self._pools.checkpoints.give_back(1)
        self.tracked_at = None

    def _take_checkpoint_slot(self) -> None:
        slots = self._pools.slots
        if slots.take(1):
            return
        if self._options.lazy and self.lock is not None:
            # Prefill has read the matched state already: it may go, the KV below it may not.
            self._tree.unlock_state(self.lock)
        self._evict_states(1)
        if not slots.take(1):
            raise EngineDied(Death.CHECKPOINT_SLOT)

    def _take_int8_slot(self) -> None:
        checkpoints = self._pools.checkpoints
        if checkpoints.take(1):
            return
        self._evictor.states(1)
        if not checkpoints.take(1):
            raise EngineDied(Death.INT8_SLOT)

    def _insert(self, num_tokens: int) -> Insertion:
        """Insert the first `num_tokens` and move the lock to where they end."""
        assert self.lock is not None
        page, tree = self._options.page_size, self._tree
        insertion = Insertion(
            self._content,
            num_tokens // page * page,
            num_shared=self.row.num_shared,
            num_counted=self._num_counted,
            priority=self._priority,
            source=self._source(num_tokens // page * page),
            window_start=self.row.window_start,
        )
        if insertion.end:
            node = insert(tree, insertion)
        else:
            node, insertion.state_was_there = tree.root, True
        self._num_counted = max(self._num_counted, insertion.end)
        self.row.share(insertion)
        tree.unlock(self.lock)
        self.lock = tree.lock(node, {Kind.STATE} if self._options.skip_decode_lock else None)
        if not insertion.state_was_there:
            self._decision.saved.append(insertion.end)
        return insertion

    def _source(self, position: int) -> HitSource:
        if position == self.num_prompt_tokens:
            return HitSource.PROMPT_END
        return HitSource.PREFIX if position < self.num_prompt_tokens else HitSource.OUTPUT

    # The end

    def finish(self) -> None:
        """Hand the last state over and free everything past it, KV included."""
        if self._options.radix:
            self._hand_over_last()
        self._release_slots()
        self.row.free()
        if self.lock is not None:
            self._tree.unlock(self.lock)
            self.lock = None

    def _hand_over_last(self) -> None:
        """Give the tree the newest state: the live slot, or the tracking slot that holds it."""
        options = self._options
        position = (self.tracked_at or 0) if options.extra_buffer else self.row.num_tokens
        if options.int8_ckpt:
            # Taken even when there is nothing to keep, and given back at once.
            self._take_int8_slot()
        state_was_there = position == 0 or self._insert(position).state_was_there
        if options.int8_ckpt:
            if state_was_there:
                self._pools.checkpoints.give_back(1)
        elif not state_was_there:
            if options.extra_buffer:
                self.num_track_slots -= 1
            else:
                self.has_live_slot = False

    def _release_slots(self) -> None:
        self._pools.slots.give_back(self.num_slots)
        self.has_live_slot, self.num_track_slots = False, 0
