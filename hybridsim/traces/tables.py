"""Trace statistics as labelled texts, for tables."""

from hybridsim.traces.content import no_content_error
from hybridsim.traces.stats import Distribution, Reuse, TraceStats
from hybridsim.units import percent


def stats_rows(stats: TraceStats) -> list[tuple[str, str]]:
    """(label, text) in the order in which they are shown."""
    rows = [
        ("requests", f"{stats.num_requests:,}"),
        ("sessions", f"{stats.num_sessions:,}" if stats.num_sessions else "none recorded"),
        ("prompt tokens", _distribution(stats.prompt_tokens)),
        ("output tokens", _distribution(stats.output_tokens)),
        ("all tokens", f"{stats.num_prompt_tokens:,} prompt, {stats.num_output_tokens:,} output"),
        ("blocks or segments", f"{stats.num_spans:,}, in {stats.num_trie_nodes:,} trie nodes"),
        ("span", "no arrival times" if stats.span_s is None else f"{stats.span_s:,.1f} s"),
    ]
    if stats.requests_per_s is not None:
        rows.append(("pace", f"{stats.requests_per_s:.4g} requests/s"))
    if stats.reuse is None:
        return [*rows, ("ideal hit rate", f"refused: {no_content_error(stats.name).message}")]
    return [*rows, *_reuse_rows(stats.reuse)]


def _distribution(values: Distribution) -> str:
    return (
        f"mean {values.mean:,.1f}, p50 {values.p50:,.0f}, p90 {values.p90:,.0f}, "
        f"p99 {values.p99:,.0f}, max {values.max:,.0f}"
    )


def _reuse_rows(reuse: Reuse) -> list[tuple[str, str]]:
    rows = [
        ("ideal hit, of blocks", percent(reuse.block_hit_rate)),
        ("ideal hit, of tokens", percent(reuse.token_hit_rate)),
        ("  of tokens with known content", percent(reuse.known_token_hit_rate)),
        ("  capped at n - 1 of n tokens", percent(reuse.capped_token_hit_rate)),
    ]
    if reuse.with_outputs_token_hit_rate is not None:
        rows.append(("  were outputs kept too", percent(reuse.with_outputs_token_hit_rate)))
    if reuse.within_session is not None and reuse.across_sessions is not None:
        rows.append(("  found in own session", percent(reuse.within_session)))
        rows.append(("  found in others only", percent(reuse.across_sessions)))
    if reuse.gap_requests is not None:
        p50, p90 = reuse.gap_requests
        rows.append(("reuse gap, of tokens", f"p50 {p50:,.0f}, p90 {p90:,.0f} requests"))
    if reuse.gap_s is not None:
        p50, p90 = reuse.gap_s
        rows.append(("", f"p50 {p50:,.1f}, p90 {p90:,.1f} s"))
    return rows
