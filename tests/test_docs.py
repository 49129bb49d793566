"""Parts of pages that are made from code."""

import pytest

from hybridsim.docs import MadePart, markdown_table

PART = MadePart("<!-- start -->", "<!-- end -->", lambda: "made")


def test_only_what_stands_between_the_marks_is_made_anew():
    text = "before\n<!-- start -->\nold\nlines\n<!-- end -->\nafter\n"
    assert PART.renewed(text) == "before\n<!-- start -->\nmade\n<!-- end -->\nafter\n"


@pytest.mark.parametrize("text", ["", "<!-- start -->\nold\n", "old\n<!-- end -->\n"])
def test_a_page_without_both_marks_is_left_alone(text):
    with pytest.raises(ValueError, match="start"):
        PART.renewed(text)


def test_a_bar_in_a_cell_does_not_end_it():
    # Markdown of tables: a bar is text where a backslash stands before it.
    assert markdown_table(("a", "b"), [("x|y", "z")]) == "| a | b |\n|---|---|\n| x\\|y | z |"
