"""The page on policies says what the registries hold."""

from pathlib import Path

from hybridsim.policies import CHECKPOINT, EVICTION, THINNING
from hybridsim.policies.page import PART

PAGE = Path(__file__).resolve().parents[2] / "docs" / "policies.md"


def test_the_page_is_in_step_with_the_registries():
    text = PAGE.read_text()
    assert PART.renewed(text) == text, "run: python -m hybridsim.policies.page docs/policies.md"


def test_every_policy_has_a_row_with_source_and_rule():
    rows = {}
    for line in PAGE.read_text().splitlines():
        cells = [cell.strip() for cell in line.strip("|").split(" | ")]
        if len(cells) == 7 and cells[0].startswith("`"):
            rows.setdefault(cells[0].strip("`"), cells)
    assert rows.keys() == CHECKPOINT.keys() | EVICTION.keys() | THINNING.keys()
    assert all(len(cells[2]) > 20 and cells[3] for cells in rows.values())
