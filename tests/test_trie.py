"""The trie against a brute-force twin that compares prompts token by token."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from hybridsim.request import Request, Spans
from hybridsim.trie import ROOT, Trie, TrieBuilder, build_trie
from tests.plain import num_common, spelled, tokens_of

Pairs = list[tuple[int, int]]


def request(index: int, pairs: Pairs, num_unknown: int = 0, output: Pairs | None = None) -> Request:
    prompt = Spans.of(pairs)
    prompt = Spans(prompt.ids, prompt.ends, prompt.num_tokens + num_unknown)
    session = f"s{index % 3}" if index % 4 else None
    return Request(f"r{index}", prompt, Spans.of(output or []), session_id=session)


def path_tokens(trie: Trie, requests: list[Request], node: int) -> list[tuple[int, int]]:
    """The tokens that the path to `node` spells, put together from its nodes' first requests."""
    found: list[tuple[int, int]] = []
    for part in trie.path(node):
        whole = requests[trie.first_request[part]]
        tokens = tokens_of(whole.prompt.joined(whole.output))
        assert trie.start_tokens[part] == len(found)
        found += tokens[trie.start_tokens[part] : trie.end_tokens[part]]
    return found


# Few ids and lengths, so that splits inside spans, repeats and self-similar prompts are common.
prompts = st.lists(st.tuples(st.integers(0, 2), st.integers(1, 4)), min_size=0, max_size=5)


@given(st.lists(st.tuples(prompts, st.integers(0, 2)), min_size=1, max_size=14))
def test_matches_and_terminals_equal_brute_force(rows: list[tuple[Pairs, int]]) -> None:
    requests = [request(i, pairs, unknown) for i, (pairs, unknown) in enumerate(rows)]
    trie = build_trie(requests)
    earlier: list[list[tuple[int, int]]] = []
    for index, (pairs, _) in enumerate(rows):
        tokens = spelled(pairs)
        best = max((num_common(tokens, other) for other in earlier), default=0)
        assert trie.match_tokens[index] == best
        ends = np.cumsum([length for _, length in pairs])
        assert trie.match_spans[index] == int(np.sum(ends <= best))
        assert path_tokens(trie, requests, int(trie.terminal[index])) == tokens
        earlier.append(tokens)


@given(st.lists(st.tuples(prompts, prompts), min_size=1, max_size=10))
def test_outputs_are_found_by_later_prompts(rows: list[tuple[Pairs, Pairs]]) -> None:
    requests = [request(i, pairs, output=output) for i, (pairs, output) in enumerate(rows)]
    trie = build_trie(requests, outputs=True)
    earlier: list[list[tuple[int, int]]] = []
    for index, (pairs, output) in enumerate(rows):
        tokens = spelled(pairs)
        assert trie.match_tokens[index] == max((num_common(tokens, o) for o in earlier), default=0)
        assert path_tokens(trie, requests, int(trie.terminal[index])) == tokens
        whole = tokens + spelled(output)
        assert path_tokens(trie, requests, int(trie.full_terminal[index])) == whole
        earlier.append(whole)


@given(st.lists(prompts, min_size=1, max_size=14))
def test_the_structure_is_a_compressed_trie(rows: list[Pairs]) -> None:
    requests = [request(i, pairs) for i, pairs in enumerate(rows)]
    trie = build_trie(requests)
    distinct = {tuple(spelled(p)[:n]) for p in rows for n in range(1, len(spelled(p)) + 1)}
    assert int(trie.node_tokens().sum()) == len(distinct)
    children = np.bincount(trie.parent[1:], minlength=trie.num_nodes)
    is_end = np.isin(np.arange(trie.num_nodes), trie.terminal)
    assert all(children[n] >= 2 or is_end[n] for n in range(1, trie.num_nodes))
    seen = set()
    for node in trie.top_down():
        assert node == ROOT or int(trie.parent[node]) in seen
        seen.add(int(node))
    for node in range(1, trie.num_nodes):
        assert trie.start_tokens[node] == trie.end_tokens[trie.parent[node]]
        assert (
            trie.first_request[node] >= trie.first_request[trie.parent[node]]
            or not trie.parent[node]
        )


@given(st.lists(prompts, min_size=1, max_size=10), st.data())
def test_a_hint_changes_nothing(rows: list[Pairs], data: st.DataObject) -> None:
    plain, hinted = TrieBuilder(), TrieBuilder()
    for index, pairs in enumerate(rows):
        spans = Spans.of(pairs)
        hint = data.draw(st.integers(0, len(hinted.parent) - 1))
        assert plain.lookup(spans) == hinted.lookup(spans, hint)
        assert plain.insert(spans, index) == hinted.insert(spans, index, hint)
    assert plain.parent == hinted.parent
    assert plain.end_tokens == hinted.end_tokens


def test_node_numbers_survive_splits() -> None:
    builder = TrieBuilder()
    first = builder.insert(Spans.of([(1, 10), (2, 10)]), 0)
    builder.insert(Spans.of([(1, 10), (3, 10)]), 1)
    # [1 x 10] is now a node of its own; the first prompt still ends where it ended.
    assert builder.end_tokens[first.node] == 20
    assert builder.start_tokens[first.node] == 10
    assert builder.parent[first.node] != ROOT


def test_a_repeated_segment_is_not_a_longer_one() -> None:
    # a[0:5] a[0:5] and a[0:10] agree on 5 tokens only.
    trie = build_trie([request(0, [(7, 10)]), request(1, [(7, 5), (7, 5)]), request(2, [(7, 8)])])
    assert trie.match_tokens.tolist() == [0, 5, 8]
