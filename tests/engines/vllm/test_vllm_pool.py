"""Names of prefixes and the block pool, against plain twins."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from hybridsim.engines.content import Content
from hybridsim.engines.vllm.block_pool import BlockPool, Key
from hybridsim.engines.vllm.names import block_keys, prefix_names
from hybridsim.request import Spans
from tests.plain import num_common, spelled

Pieces = list[tuple[int, int]]


PIECES = st.lists(st.tuples(st.integers(0, 2), st.integers(1, 5)), min_size=1, max_size=6)


@given(PIECES, PIECES)
def test_names_are_equal_exactly_where_prefixes_agree(a: Pieces, b: Pieces) -> None:
    first, second = (Content.of(Spans.of(pieces)) for pieces in (a, b))
    common = num_common(spelled(a), spelled(b))
    most = min(first.num_tokens, second.num_tokens)
    lengths = np.arange(1, most + 1)
    same = prefix_names(first, lengths) == prefix_names(second, lengths)
    assert same.tolist() == [length <= common for length in range(1, most + 1)]


@given(PIECES, PIECES, st.integers(1, 4), st.integers(0, 3))
def test_a_block_key_covers_its_lookahead(a: Pieces, b: Pieces, unit: int, ahead: int) -> None:
    first, second = (Content.of(Spans.of(pieces)) for pieces in (a, b))
    common = num_common(spelled(a), spelled(b))
    keys = [block_keys(content, unit, ahead) for content in (first, second)]
    assert [len(k) for k in keys] == [
        max(content.num_tokens - ahead, 0) // unit for content in (first, second)
    ]
    for index, (x, y) in enumerate(zip(*keys, strict=False), start=1):
        assert (x == y) == (index * unit + ahead <= common)


OPERATIONS = st.lists(
    st.tuples(st.sampled_from(["take", "touch", "free", "hash", "partial"]), st.integers(0, 30)),
    max_size=60,
)


@given(OPERATIONS, st.booleans())
def test_the_pool_equals_a_list(operations: list[tuple[str, int]], caching: bool) -> None:
    pool, free = BlockPool(8, 1, caching=caching), list(range(1, 8))
    held: list[int] = []
    for number, (operation, choice) in enumerate(operations):
        if operation == "take" and free:
            count = 1 + choice % len(free)
            taken, free = free[:count], free[count:]
            assert pool.take(count) == taken
            held += taken
        elif operation == "touch" and caching:
            block = 1 + choice % 7
            if block in free:
                free.remove(block)
            pool.touch([block])
            held.append(block)
        elif operation == "free" and held:
            block = held.pop(choice % len(held))
            pool.free([block])
            if block not in held:
                last = caching and pool.main_key[block] is not None
                free = [*free, block] if last else [block, *free]
        elif held and operation == "hash" and pool.main_key[held[choice % len(held)]] is None:
            pool.insert(Key(0, choice % 4), held[choice % len(held)], number)
        elif held and operation == "partial":
            pool.insert_partial(Key(0, choice % 5), held[choice % len(held)], number)
        assert list(pool.free_queue) == free
        pool.check([held])
