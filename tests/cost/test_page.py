"""The page on costs shows the ceilings that ship."""

import json

import pytest

from hybridsim.cost.efficiency import CLASSES, SHIPPED
from hybridsim.cost.page import PART


@pytest.fixture
def page(repo_dir):
    path = repo_dir / "docs" / "cost.md"
    if not path.exists():
        pytest.skip("the docs are not in this checkout")
    return path.read_text()


def test_the_page_is_in_step_with_the_file(page):
    assert PART.renewed(page) == page, "run: python -m hybridsim.cost.page docs/cost.md"


def test_every_class_has_a_row_with_its_shares(page):
    shipped = json.loads(SHIPPED.read_text())["classes"]
    rows = {}
    for line in page.splitlines():
        cells = [cell.strip() for cell in line.strip("|").split(" | ")]
        if len(cells) == 6 and cells[0].strip("| `") in CLASSES:
            rows[cells[0].strip("| `")] = cells
    assert rows.keys() == set(CLASSES)
    for name, cells in rows.items():
        assert cells[3].startswith(f"{shipped[name]['memory']:.3f} ")
