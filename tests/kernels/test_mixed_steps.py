"""Steps of several requests at once: prompts cut anywhere, beside requests that decode."""

from dataclasses import replace

import numpy as np
import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("triton")

from hybridsim.kernels.attention import work  # noqa: E402
from hybridsim.kernels.model import batch as module  # noqa: E402
from hybridsim.kernels.model.batch import PAGE_SIZE, StepShape  # noqa: E402
from hybridsim.kernels.model.model import HybridModel  # noqa: E402
from hybridsim.kernels.model.place import Place  # noqa: E402
from hybridsim.kernels.plan import NO_SLOT, SequenceTask, make_plan  # noqa: E402
from hybridsim.models import MoeSpec  # noqa: E402

from .helpers import relative_error  # noqa: E402
from .test_model import SMALL  # noqa: E402
from .twin_model import hidden as twin_hidden  # noqa: E402


class Request:
    """Random tokens with a state slot and pages of its own; `done` of them are computed."""

    def __init__(self, seed, length, slot, pages):
        generator = torch.Generator().manual_seed(seed)
        self.tokens = torch.randint(0, 1000, (length,), generator=generator, dtype=torch.int32)
        self.slot, self.pages, self.done = slot, pages, 0


def step(model, patch, chunks, decodes):
    """Hidden vectors after chunks `(request, tokens)` and one token of each of `decodes`."""
    ends = [(r, r.done + count) for r, count in chunks] + [(r, r.done + 1) for r in decodes]
    pages = [r.pages[: -(-end // PAGE_SIZE)] for r, end in ends]
    patch.setattr(module, "_draw_pages", lambda *_: np.concatenate(pages))
    shape = StepShape(tuple((n, r.done) for r, n in chunks), tuple(r.done for r in decodes))
    batch = model.batch(shape, seed=0, own_routing=True)
    tasks = [SequenceTask(n, r.slot if r.done else NO_SLOT, r.slot) for r, n in chunks]
    batch.tokens[: shape.num_tokens].copy_(torch.cat([r.tokens[r.done : end] for r, end in ends]))
    batch.slots.copy_(torch.tensor([r.slot for r in decodes], dtype=torch.int32))
    batch = replace(batch, plan=make_plan(tasks, batch.plan.chunk_size, model.place.device))
    for request, end in ends:
        request.done = end
    return model.hidden(batch)


def all_experts(spec):
    """Every token passes every expert: a near tie, broken otherwise in half precision, is none."""
    return replace(spec, layers=tuple(
        replace(layer, ffn=replace(layer.ffn, num_active=layer.ffn.num_experts))
        if isinstance(layer.ffn, MoeSpec) else layer
        for layer in spec.layers
    ))  # fmt: skip


@pytest.mark.usefixtures("filler_rows")
@pytest.mark.parametrize("name", SMALL)
def test_requests_of_one_step_know_nothing_of_each_other(name, device, half_dtype, monkeypatch):
    """Prompts of 20, 5 and 1 tokens in three steps, prefixes cut into pieces of 16 keys; each step
    gives what the whole prompts give. Slots and pages hold NaN before they are written."""
    monkeypatch.setattr(work, "piece_limit", lambda *_: 16)
    monkeypatch.setattr(work, "_STEP", 16)
    torch.manual_seed(0)
    dtype = torch.float32 if device == "cpu" else half_dtype
    model = HybridModel(all_experts(SMALL[name]), 8, 24, Place(device, dtype))
    for tensor in (model.states, model.conv_states, *pages_of(model)):
        tensor.fill_(float("nan"))
    long, short, least = Request(1, 20, 5, [7, 3]), Request(2, 5, 2, [11]), Request(3, 1, 0, [1])
    found = [
        step(model, monkeypatch, [(short, 3), (long, 17)], []),
        step(model, monkeypatch, [(long, 2), (least, 1)], [short]),
        step(model, monkeypatch, [], [short, long]),
    ]
    a, b, c = (twin_hidden(model, request.tokens.to(device)) for request in (long, short, least))
    expected = [[b[2], a[16]], [a[18], c[0], b[3]], [b[4], a[19]]]
    for actual, rows in zip(found, expected, strict=True):
        assert relative_error(actual, torch.stack(rows)) < (1e-4 if device == "cpu" else 6e-2)


def pages_of(model):
    caches = [layer.cache for layer in model.attention_layers]
    return [x for cache in caches for x in (cache.keys, cache.values) if x is not None]
