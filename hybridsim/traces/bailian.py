"""`bailian`: Qwen-Bailian usage traces; ids of 16-token blocks, times in seconds.

`{"chat_id", "parent_chat_id" (-1: none), "timestamp", "input_length", "output_length", "type",
"turn", "hash_ids"}`. The publisher does not say that ids are chained, so prefixes are matched
through the trie, and whether they are chained is tested and reported. A partial last block may
have an id (ceil) or none (floor); both are read and counted.
"""

from collections.abc import Iterator

from pydantic import Field

from hybridsim.request import Request, Spans
from hybridsim.traces.options import GridOptions
from hybridsim.traces.reading import Source
from hybridsim.traces.row import Clock, Row
from hybridsim.traces.spans import ChainCheck, GridEnds

_LONGEST_S = 1e7  # four months; a two-hour file in milliseconds ends at 7.2e6 s only


class Options(GridOptions):
    """Options of `bailian`."""

    block_size: int = Field(default=16, ge=1, le=2**20, description="tokens a block id stands for")


def read(source: Source, options: Options) -> Iterator[Request]:
    """Requests of a Bailian file in arrival order. A session is a tree of chats with one root."""
    grid = GridEnds(options.block_size)
    clock = Clock("seconds", 1.0, options.sort)
    chained = ChainCheck()
    chats = _Chats()
    rules = {"ceil": 0, "floor": 0}
    source.notes.at_end(lambda: _note(source, chained, chats, rules))
    for index, row in enumerate(source.rows()):
        prompt, rule = _prompt(row, grid, options.block_size)
        rules[rule] += 1
        chained.add(prompt.ids)
        arrival_s = clock.seconds(row, "timestamp")
        if arrival_s > _LONGEST_S:
            raise row.wrong("timestamp", "seconds from the start of the file (not milliseconds)")
        output = Spans.unknown(row.integer("output_length"))
        body = Request("", prompt, output, grid_tokens=options.block_size)
        yield chats.request(row, index, arrival_s, body)


def _prompt(row: Row, grid: GridEnds, block_tokens: int) -> tuple[Spans, str]:
    num_tokens = row.integer("input_length", 1)
    ids = row.ids("hash_ids")
    rule = _partial_block_rule(len(ids), num_tokens, block_tokens)
    if rule is None:
        raise row.error(
            f"hash_ids has {len(ids)} ids for input_length {num_tokens}; allowed: "
            f"{-(-num_tokens // block_tokens)}, or {num_tokens // block_tokens} without one for "
            f"the partial last block (blocks of {block_tokens} tokens)"
        )
    return grid.spans(ids, num_tokens), rule


def _partial_block_rule(num_ids: int, num_tokens: int, block_tokens: int) -> str | None:
    """`ceil` or `floor`: how many ids there are for the prompt; None when neither fits.

    `ceil`: a partial last block has an id. `floor`: it has none. Whole prompts are both; `ceil`.
    """
    if num_ids == -(-num_tokens // block_tokens):
        return "ceil"
    return "floor" if num_ids == num_tokens // block_tokens else None


class _Chats:
    """Follows parent links. Parents may lie before the file's window."""

    def __init__(self) -> None:
        self._index_of: dict[int, int] = {}
        self._root_of: dict[int, int] = {}
        self._arrivals_s: list[float] = []
        self.num_lost_parents = 0

    def request(self, row: Row, index: int, arrival_s: float, body: Request) -> Request:
        """`body` with its id, session, arrival and link to the turn before."""
        chat = row.integer("chat_id", below=2**62)
        parent = row.integer("parent_chat_id", -1, 2**62)
        if chat in self._index_of:
            raise row.error(f"chat_id {chat} occurs twice; allowed: one line a chat_id")
        previous = self._index_of.get(parent)
        # Turns of a chat whose first turn is outside the window still belong together.
        root = self._root_of.get(parent, chat if parent < 0 else parent)
        if parent >= 0 and previous is None:
            self.num_lost_parents += 1
            self._root_of[parent] = parent
        self._root_of[chat] = root
        self._index_of[chat] = index
        self._arrivals_s.append(arrival_s)
        gap_s = 0.0 if previous is None else max(0.0, arrival_s - self._arrivals_s[previous])
        return Request(
            str(chat),
            body.prompt,
            body.output,
            arrival_s=arrival_s,
            session_id=str(root),
            grid_tokens=body.grid_tokens,
            previous=previous,
            delay_s=gap_s,
        )


def _note(source: Source, chained: ChainCheck, chats: _Chats, rules: dict[str, int]) -> None:
    notes = source.notes
    notes.assume(chained.sentence())
    notes.assume(
        f"{rules['ceil']} prompts have an id for each started block, {rules['floor']} for whole "
        "blocks only. The publisher pads the last block, so that a child often lacks its id."
    )
    notes.assume("A turn's delay is its distance from the arrival of the turn before.")
    notes.assume("Outputs have no ids: later prompts never find what a model generated.")
    if chats.num_lost_parents:
        notes.assume(f"{chats.num_lost_parents} parents lie before the file's first line.")
