"""Runs inside the oracle's environment: jobs on stdin, facts on stdout, one JSON object a line.

A job is `{"config", "trace"}`, an answer `{"facts": [one a request], "sane": ...}`. Everything that
decides is the engine's own code, called in the order of the oracle's driver; this file only
watches. usage: python worker.py ORACLE_DIR
"""

import json
import os
import sys
import traceback
from array import array
from functools import partial
from zlib import crc32

OWN_KEYS = ("radix", "tlru_threshold", "tlru_next_prompt_estimate", "sliding_window", "swa_tokens")
DEATHS = (
    ("assert dst_index", "COPY_SLOT"),
    ("Can not alloc mamba cache", "CHECKPOINT_SLOT"),
    ("Not enough space for mamba cache", "LIVE_SLOT"),
    ("Not enough space for mamba ping pong", "TRACK_SLOTS"),
    ("Can not alloc int8", "INT8_SLOT"),
    ("in alloc_for_extend", "PREFILL_KV"),
    ("in alloc_for_decode", "DECODE_KV"),
)


REAL = {}  # names of the driver as they were before this file changed them


def tokens_bytes(tokens):
    return array("q", tokens).tobytes()


def window_allocator(size, size_swa, page_size, **given):
    """The engine's allocator over two pools, without the tensors behind them."""
    from sglang.srt.mem_cache.allocator.swa import SWATokenToKVPoolAllocator
    from sglang.srt.mem_cache.base_swa_memory_pool import BaseSWAKVPool

    def nothing(self, *args, **named):
        return None

    bare = dict.fromkeys(BaseSWAKVPool.__abstractmethods__, nothing)

    class Pool(BaseSWAKVPool):
        locals().update(bare)

        def __init__(self):
            pass

        def register_mapping(self, full_to_swa_index_mapping):
            self.full_to_swa_index_mapping = full_to_swa_index_mapping

        def translate_loc_from_full_to_swa(self, kv_indices):
            return self.full_to_swa_index_mapping[kv_indices]

    given.pop("kvcache")
    allocator = SWATokenToKVPoolAllocator(size, size_swa, page_size, kvcache=Pool(), **given)
    for part in (allocator.full_attn_allocator, allocator.swa_attn_allocator):
        part.use_triton_kernels = False
    return allocator


def watching(oracle):
    """The driver's class with an eye on nodes, matches and insertions."""

    class Watched(oracle.Oracle):
        kinds = oracle.CT

        def __init__(self, config):
            own = {key: config.pop(key) for key in OWN_KEYS if key in config}
            self.matches, self.hits, self.saved, self.priority = [], [], [], 0
            self.window = own.get("sliding_window")
            self._with_own_options(own, config)
            super().__init__(config)
            if self.window:
                self.alloc.available_size = self.admitted_tokens
            self._watch_tree()

        def _with_own_options(self, own, config):
            """Pass on what the driver has no name for."""
            extra = {"disable": not own.get("radix", True)}
            if config.get("eviction_policy") == "tlru":
                extra["eviction_policy_config"] = {
                    "threshold": own.get("tlru_threshold", 0),
                    "next_prompt_estimate": own.get("tlru_next_prompt_estimate", 0),
                }
            oracle.TokenToKVPoolAllocator = REAL["TokenToKVPoolAllocator"]
            oracle.PagedTokenToKVPoolAllocator = REAL["PagedTokenToKVPoolAllocator"]
            if self.window:
                extra["sliding_window_size"] = self.window
                extra["tree_components"] = (oracle.CT.FULL, oracle.CT.SWA, oracle.CT.MAMBA)
                allocator = partial(window_allocator, size_swa=own["swa_tokens"])
                oracle.TokenToKVPoolAllocator = partial(allocator, page_size=1)
                oracle.PagedTokenToKVPoolAllocator = allocator
            make = REAL["CacheInitParams"]
            oracle.CacheInitParams = lambda **given: make(**{**given, **extra})

        def _watch_tree(self):
            match, insert = self.tree.match_prefix, self.tree.insert

            def watched_match(params):
                result = match(params)
                self.matches.append(int(result.full_kv_hit_length))
                self.hits.append(int(result.device_prefix_len))
                return result

            def watched_insert(params):
                result = insert(params)
                if not result.mamba_exist:
                    self.saved.append(len(params.key))
                return result

            self.tree.match_prefix, self.tree.insert = watched_match, watched_insert

        def batch(self, req, **given):
            """Let the engine slide the window, which the driver switches off."""
            batch = super().batch(req, **given)
            if self.window:
                from sglang.srt.model_executor.forward_batch_info import ForwardMode

                del batch.maybe_evict_swa
                decodes = "req_pool_indices" in given
                batch.forward_mode = ForwardMode.DECODE if decodes else ForwardMode.EXTEND
            return batch

        def admitted_tokens(self):
            """What the driver's admission sum sees: enough or nothing, as the engine's budget says.

            A chunk that the budget would make smaller counts as refused.
            """
            if not self.hits:  # before the lookup: for display only
                return 0
            request, page = self.request, self.c.page_size
            output = min(len(request.get("output") or [0]), 4096)
            rest = len(request["tokens"]) - self.hits[0]
            size = self.c.chunked_prefill_size
            chunk = size if size and size > 0 else None
            admitted, limit = self.alloc.create_prefill_budget(self.tree).check_prefill(
                extend_input_len=rest,
                total_tokens=rest + output + page,
                max_new_tokens=output,
                input_tokens=len(request["tokens"]),
                swa_host_hit_length=0,
                chunk_limit=chunk,
            )
            return 10**9 if admitted and limit == chunk else -(10**9)

        def snapshot_paths(self):
            return {ref: state for ref, state, *_ in self.nodes()}

        def nodes(self):
            """`(start-end-digest of the path, has state, hit count, node id)` of every node."""
            found = []
            if not hasattr(self.tree.tree_core, "lru_lists"):
                return found  # the core in Rust does not show its nodes

            def visit(node, start, digest):
                for child in node.children.values():
                    path = crc32(tokens_bytes(child.key.token_ids), digest)
                    end = start + len(child.key)
                    state = child.component_data[oracle.CT.MAMBA].value is not None
                    window = child.component_data[oracle.CT.SWA].value is not None
                    name = f"{start}-{end}-{path}"
                    found.append((name, state, child.hit_count, child.id, window))
                    visit(child, end, path)

            visit(self.tree.tree_core.root_node, 0, 0)
            return found

        def order(self, nodes, kind):
            """The nodes that hold `kind`, least recently used first."""
            names = {node_id: ref for ref, _, _, node_id, _ in nodes}
            if not nodes:
                return []
            lru = self.tree.tree_core.lru_lists[kind]
            order, node = [], lru.tail.lru_prev[lru._pt]
            while node is not lru.head:
                order.append(names[node.id])
                node = node.lru_prev[lru._pt]
            return order

    return Watched


def facts_of(watched, request):
    """What the engine did with one request."""
    for seen in (watched.matches, watched.hits, watched.saved):
        seen.clear()
    watched.request = request
    watched.priority = request.get("priority", 0)
    facts = {"id": request["id"], "outcome": "served"}
    try:
        row = watched.run(request)
    except Exception:
        trace = traceback.format_exc()
        known = [name for sign, name in DEATHS if sign in trace]
        return {**facts, "outcome": "died", "death": known[0] if known else trace}
    facts["match"], facts["hit"] = watched.matches[0], row["hit"]
    facts["evictions"] = [
        [
            [e["ask_tokens"], e["ask_states"], e["tokens"], e["states"]],
            sorted(e["deleted"]),
            sorted(e["tombstoned"]),
        ]
        for e in watched.ev
    ]
    nodes = watched.nodes()
    facts["tree"] = sorted([ref, state, hits] for ref, state, hits, _, _ in nodes)
    kinds = watched.kinds
    facts["state_order"] = watched.order(nodes, kinds.MAMBA)
    if watched.window:
        facts["windows"] = sorted(ref for ref, _, _, _, window in nodes if window)
        facts["window_order"] = watched.order(nodes, kinds.SWA)
        facts["window_usage"] = [
            watched.alloc.swa_available_size(),
            watched.tree.swa_evictable_size(),
        ]
    if "rejected" in row and watched.window:
        return {**facts, "outcome": "refused"}
    if "rejected" in row:
        return {**facts, "outcome": "refused", "need": row["need"], "have": row["have"]}
    free = row["free"]
    facts.update(branch=row["branch"], chunks=row["chunks"], peak=row["req_state_slots_peak"])
    facts["saved"] = list(watched.saved)
    facts["tracked"] = [[one["at"], one["phase"]] for one in row["tracked"]]
    facts["usage"] = [
        watched.alloc.full_available_size() if watched.window else free["kv_free"],
        free["kv_evictable"],
        row["kv_cached"],
        free["state_free"],
        free["state_evictable"],
        row["states_cached"],
    ]
    return facts


def play(watched_class, config, trace):
    watched = watched_class(dict(config))
    facts = []
    try:
        for request in trace:
            facts.append(facts_of(watched, request))
            if facts[-1]["outcome"] == "died":
                return {"facts": facts, "sane": None}
        try:
            watched.tree.sanity_check()
            sane = True
        except Exception as error:
            sane = repr(error)
    finally:
        watched.close()
    return {"facts": facts, "sane": sane}


def with_priority(oracle, holder):
    """The driver builds plain requests; give them the priority of the trace."""
    make = oracle.Req

    def request(*args, **named):
        return make(*args, priority=holder["watched"].priority, **named)

    return request


def main():
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # whatever the engine prints must not mix with the answers
    sys.path.insert(0, sys.argv[1])
    os.chdir(sys.argv[1])
    import oracle

    for name in ("CacheInitParams", "TokenToKVPoolAllocator", "PagedTokenToKVPoolAllocator"):
        REAL[name] = getattr(oracle, name)
    holder = {}
    oracle.Req = with_priority(oracle, holder)
    base = watching(oracle)

    class Kept(base):
        def __init__(self, config):
            holder["watched"] = self
            super().__init__(config)

    for line in sys.stdin:
        job = json.loads(line)
        answers.write(json.dumps(partial(play, Kept)(job["config"], job["trace"])) + "\n")
        answers.flush()


if __name__ == "__main__":
    main()
