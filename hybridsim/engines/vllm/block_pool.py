"""The one pool of equal blocks: reference counts, and the map from hash to block.

It knows no request and no rule of when to save or to free; block 0 is the null block, a placeholder
that is never handed out.
"""

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from hybridsim.engines.vllm.free_queue import FreeQueue

NULL = 0


class Key(NamedTuple):
    """Name of a cached block: the group it serves and the content of the prefix it ends."""

    group: int
    content: int


class Eviction(NamedTuple):
    """A cached block whose hashes were removed because the block was needed for something else.

    num_tokens: prefix length of its main hash. owner: who first cached that content (an opaque
    number). lost_state: this loss made a checkpoint unusable that was whole before.
    """

    block: int
    group: int
    num_tokens: int
    owner: int
    lost_state: bool


class BlockPool:
    """Blocks `1 .. num_blocks - 1`, each either free (in the queue) or referenced.

    A freed block with a hash goes to the queue's tail, one without to its head.
    """

    def __init__(
        self, num_blocks: int, num_groups: int, *, caching: bool, state_groups: Sequence[int] = ()
    ) -> None:
        self.num_blocks = num_blocks
        self.caching = caching
        self.reuses_uncached_first = True
        self.references = [0] * num_blocks
        self.main_key: list[Key | None] = [None] * num_blocks
        self.key_tokens = [0] * num_blocks
        self.extra_keys: dict[int, list[Key]] = {}
        self.cached: list[dict[int, dict[int, None]]] = [{} for _ in range(num_groups)]
        self.owner: list[dict[int, int]] = [{} for _ in range(num_groups)]
        self.current_owner = -1
        self.evictions: list[Eviction] = []
        self.num_taken = 0
        self.num_changes = 0
        self._state_groups = tuple(state_groups)
        self.free_queue = FreeQueue(num_blocks)

    @property
    def num_free(self) -> int:
        return self.free_queue.num_free

    @property
    def least_free(self) -> int:
        """The fewest free blocks there ever were."""
        return self.free_queue.least_free

    # -- references ------------------------------------------------------------------------

    def take(self, count: int) -> list[int]:
        """Pop `count` blocks from the head, evicting what they cache. The caller checked room."""
        if count > self.num_free:
            raise AssertionError(f"{count} blocks wanted, {self.num_free} free")
        blocks = []
        for _ in range(count):
            block = self.free_queue.pop()
            self.evict(block)
            self.references[block] = 1
            blocks.append(block)
        self.num_taken += count
        self.num_changes += count
        return blocks

    def touch(self, blocks: Iterable[int]) -> None:
        """Reference cached blocks once more; free ones leave the queue."""
        for block in blocks:
            if block == NULL:
                continue
            if self.references[block] == 0:
                self.free_queue.remove(block)
            self.references[block] += 1
            self.num_changes += 1

    def free(self, blocks: Iterable[int]) -> None:
        """Give back one reference of each; of those that become free, hashed ones queue last."""
        references, keys = self.references, self.main_key
        first: list[int] = []
        last: list[int] = []
        for block in blocks:
            if block == NULL:
                continue
            references[block] -= 1
            self.num_changes += 1
            if references[block]:
                continue
            stays = keys[block] is not None if self.caching else not self.reuses_uncached_first
            (last if stays else first).append(block)
        if first:
            self.free_queue.add_first(first)
        if last:
            self.free_queue.add_last(last)

    def num_evictable(self, blocks: Iterable[int]) -> int:
        """How many of these are free now, so that touching them uses up free blocks."""
        return sum(block != NULL and not self.references[block] for block in blocks)

    # -- hashes ----------------------------------------------------------------------------

    def find(self, group: int, content: int) -> int | None:
        """The first block cached under this content, or None. Changes nothing."""
        blocks = self.cached[group].get(content)
        return next(iter(blocks)) if blocks else None

    def insert(self, key: Key, block: int, num_tokens: int) -> None:
        """Cache a block under one more key; the first key of a block is its main one."""
        blocks = self.cached[key.group].get(key.content)
        if blocks is None:
            blocks = self.cached[key.group][key.content] = {}
            self.owner[key.group][key.content] = self.current_owner
        elif block in blocks:
            return
        if self.main_key[block] is None:
            self.main_key[block], self.key_tokens[block] = key, num_tokens
        else:
            self.extra_keys.setdefault(block, []).append(key)
        blocks[block] = None
        self.num_changes += 1

    def remove_keys(self, block: int) -> list[Key]:
        """Uncache a block; returns the keys it had, main one first."""
        main = self.main_key[block]
        if main is None:
            return []
        keys = [main, *self.extra_keys.pop(block, ())]
        for key in keys:
            blocks = self.cached[key.group][key.content]
            del blocks[block]
            if not blocks:
                del self.cached[key.group][key.content], self.owner[key.group][key.content]
        self.main_key[block], self.key_tokens[block] = None, 0
        self.num_changes += 1
        return keys

    def evict(self, block: int) -> None:
        """Uncache a block and write down what was lost."""
        main = self.main_key[block]
        if main is None:
            return
        owner, num_tokens = self.owner[main.group][main.content], self.key_tokens[block]
        was_whole = self._is_state(main)
        self.remove_keys(block)
        lost = was_whole and not self._is_state(main)
        self.evictions.append(Eviction(block, main.group, num_tokens, owner, lost))

    def _is_state(self, key: Key) -> bool:
        groups = self._state_groups
        return key.group in groups and all(key.content in self.cached[g] for g in groups)

    def move_keys(self, source: int, target: int) -> None:
        """Let `target`, an uncached block, be found in place of `source`."""
        num_tokens = self.key_tokens[source]
        for key in self.remove_keys(source):
            self.insert(key, target, num_tokens)

    def replace_keys(self, key: Key, block: int, num_tokens: int) -> None:
        """Cache a block under one key only."""
        self.remove_keys(block)
        self.insert(key, block, num_tokens)

    def insert_partial(self, key: Key, block: int, num_tokens: int) -> None:
        """Make a block reachable from a prefix that ends inside it.

        A shorter main key is outdated by now (the block has grown) and is removed.
        """
        known = block in self.cached[key.group].get(key.content, ())
        if not known and self.main_key[block] and self.key_tokens[block] < num_tokens:
            self.remove_keys(block)
        self.insert(key, block, num_tokens)

    # -- laws ------------------------------------------------------------------------------

    def check(self, owners: Iterable[Iterable[int]]) -> None:
        """Raise AssertionError unless the pool agrees with its owners.

        owners: for every owner, the blocks it holds (null blocks allowed). Laws: a block is free
        or referenced, never both; its references are the number of times owners hold it; the
        queue is linked both ways; block and hash map name each other.
        """
        held = [0] * self.num_blocks
        for blocks in owners:
            for block in blocks:
                held[block] += 1
        held[NULL] = 0
        assert held == self.references, "reference counts differ from what the owners hold"
        self.free_queue.check()
        assert set(self.free_queue) == {b for b in range(1, self.num_blocks) if not held[b]}, (
            "a block is neither free nor held, or both"
        )
        self._check_hashes()

    def _check_hashes(self) -> None:
        by_block: set[tuple[Key, int]] = set()
        for block, main in enumerate(self.main_key):
            assert main is not None or block not in self.extra_keys, "extra keys without a main one"
            if main is not None:
                by_block.update((key, block) for key in (main, *self.extra_keys.get(block, ())))
        by_map = {
            (Key(group, content), block)
            for group, contents in enumerate(self.cached)
            for content, blocks in contents.items()
            for block in blocks
        }
        assert by_block == by_map, "hash map and blocks disagree"
        assert all(
            self.owner[g].keys() == contents.keys() for g, contents in enumerate(self.cached)
        ), "an owner is known for content that is not cached"
