"""hybridsim's decisions in the words of the oracle's worker, so that both can be compared."""

from typing import Any
from zlib import crc32

import numpy as np

from conformance.golden import digest
from hybridsim.engines.content import Content
from hybridsim.engines.sglang.decision import Death, Outcome
from hybridsim.engines.sglang.eviction import NodeRef
from hybridsim.engines.sglang.node import Kind, Node
from hybridsim.engines.sglang.options import options_from
from hybridsim.engines.sglang.server import SGLangServer

Facts = dict[str, Any]


def our_facts(config: dict[str, Any], trace: list[dict[str, Any]]) -> list[Facts]:
    """One entry a request, up to and with the one at which the engine dies. Laws are checked."""
    server = SGLangServer(options_from(config))
    facts: list[Facts] = []
    for request in trace:
        facts.append(_serve(server, request))
        if facts[-1]["outcome"] == Outcome.DIED:
            break
        server.check()
    return facts


def _serve(server: SGLangServer, request: dict[str, Any]) -> Facts:
    output = request.get("output") or [0]
    ids = np.array(request["tokens"] + output, dtype=np.int64)
    decision = server.serve(
        str(request["id"]),
        Content(ids, np.arange(1, len(ids) + 1)),
        len(request["tokens"]),
        len(output),
        request.get("priority", 0),
    )
    facts: Facts = {"id": request["id"], "outcome": decision.outcome.value}
    if decision.death is not None:
        return {**facts, "death": Death(decision.death).name}
    facts["match"], facts["hit"] = decision.num_match_tokens, decision.num_hit_tokens
    facts["evictions"] = [
        [
            [e.asked_tokens, e.asked_states, e.got_tokens, e.got_states],
            sorted(map(_ref, e.deleted)),
            sorted(map(_ref, e.tombstoned)),
        ]
        for e in decision.evictions
    ]
    facts["tree"] = sorted([_ref(n), n.state.held, n.hit_count] for n in server.tree.walk())
    facts["state_order"] = [_ref(node) for node in server.tree.states.recency.oldest_first()]
    if server.options.sliding_window is not None:
        window, ledger = server.tree.component(Kind.SWA), server.tree.ledger
        facts["windows"] = sorted(_ref(node) for node in server.tree.walk() if node.swa.held)
        facts["window_order"] = [_ref(node) for node in window.recency.oldest_first()]
        facts["window_usage"] = [server.pools.free_swa_tokens, ledger.evictable(Kind.SWA)]
        if decision.outcome is Outcome.REFUSED:
            return facts
    if decision.outcome is Outcome.REFUSED:
        return {**facts, "need": decision.needed_tokens, "have": decision.available_tokens}
    facts.update(branch=decision.branch, chunks=decision.num_chunks, peak=decision.peak_slots)
    facts["saved"] = decision.saved
    facts["tracked"] = [[one.position, one.phase] for one in decision.tracked]
    after = decision.after
    assert after is not None
    facts["usage"] = [
        after.kv_free,
        after.kv_evictable,
        after.kv_cached,
        after.state_free,
        after.state_evictable,
        after.states_cached,
    ]
    return facts


def _ref(node: Node | NodeRef) -> str:
    return f"{node.start}-{node.end}-{crc32(node.content.ids[: node.end].tobytes())}"


def condensed(facts: Facts) -> Facts:
    """Facts for a golden file: lists of nodes become digests."""
    short = dict(facts)
    for key in ("tree", "state_order", "windows", "window_order"):
        if key in short:
            short[key] = digest(short[key])
    if "evictions" in short:
        short["evictions"] = [
            [counts, len(deleted), len(tombstoned), digest([deleted, tombstoned])]
            for counts, deleted, tombstoned in short["evictions"]
        ]
    return short


def comparable(facts: Facts, config: dict[str, Any]) -> Facts:
    """Leaves out what the driver and hybridsim record under different rules."""
    hidden: set[str] = set()
    if config["strategy"] == "no_buffer":
        # Without tracking slots the driver lists chunk ends here; `saved` has them anyway.
        hidden.add("tracked")
    if config.get("core") == "rust":
        # The engine's core in Rust tells numbers, not nodes.
        hidden |= {"tree", "state_order", "windows", "window_order"}
        if "evictions" in facts:
            facts = {**facts, "evictions": [counts for counts, *_ in facts["evictions"]]}
    return {key: value for key, value in facts.items() if key not in hidden}
