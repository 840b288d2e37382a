import pytest

from amplint.comments import read_layout


def comments(text: str) -> list[tuple[int, str, bool, int, int]]:
    """Row, text, whether it stands alone, and the rows that it speaks of."""
    return [
        (comment.row, text[comment.start : comment.end], comment.own_line, comment.first_row, comment.last_row)
        for comment in read_layout(text).comments
    ]


def test_comment_behind_code_speaks_of_its_row() -> None:
    assert comments("x = 1  # one\ny = 2\n") == [(1, "# one", False, 1, 1)]


def test_comment_at_the_end_of_a_statement_speaks_of_all_its_rows() -> None:
    assert comments("f(  # open\n  1,  # inner\n)  # close\n") == [
        (1, "# open", False, 1, 1),
        (2, "# inner", False, 2, 2),
        (3, "# close", False, 1, 3),
    ]


def test_header_of_a_compound_statement_is_a_logical_line_without_its_body() -> None:
    text = "with open(\n    'a'\n):  # header\n    pass\n"
    assert comments(text) == [(3, "# header", False, 1, 3)]


def test_comment_on_its_own_speaks_of_the_next_logical_line() -> None:
    assert comments("# a\n\n# b\nf(\n)\n") == [(1, "# a", True, 4, 5), (3, "# b", True, 4, 5)]


def test_comment_on_its_own_inside_brackets_speaks_of_the_next_row_with_code() -> None:
    assert comments("f(\n  # a\n\n  1,\n  2,\n)\n") == [(2, "# a", True, 4, 4)]


def test_comment_after_all_code_speaks_of_itself() -> None:
    assert comments("x = 1\n# end") == [(2, "# end", True, 2, 2)]


def test_hash_in_a_string_is_no_comment() -> None:
    assert comments("x = '# no'\ny = '''\n# no\n'''\nz = f'# {x} no'\n") == []


@pytest.mark.parametrize("newline", ["\n", "\r\n", "\r"])
def test_places_are_characters_under_every_line_end(newline: str) -> None:
    assert comments(f"# \u00e9\u65e5{newline}x = '\U0001f600'  # z{newline}") == [
        (1, "# \u00e9\u65e5", True, 2, 2),
        (2, "# z", False, 2, 2),
    ]


def test_form_feed_and_unicode_separators_do_not_end_a_line() -> None:
    assert comments("\f# a\u2028b\nx = 1\n") == [(1, "# a\u2028b", True, 2, 2)]


def test_rows_that_cannot_carry_a_comment() -> None:
    text = "x = 1 + \\\n    2\ny = '''a\nb\n'''\nz = f'''{\nx\n} b\n'''\nw = 1  # c \\\n"
    assert sorted(read_layout(text).closed_rows) == [1, 3, 4, 6, 7, 8]


def test_logical_lines() -> None:
    assert read_layout("a = 1\nb = (\n  2)\n").logical_lines == {1: (1, 1), 2: (2, 3), 3: (2, 3)}


@pytest.mark.parametrize(
    "text",
    ["x = 1  # a\nf(\n", "x = 1  # a\n'''b\n", "x = 1  # a\nif x:\n        y\n    z\n"],
    ids=["bracket", "string", "dedent"],
)
def test_broken_python_is_read_as_far_as_possible(text: str) -> None:
    layout = read_layout(text)
    assert not layout.complete
    assert [text[comment.start : comment.end] for comment in layout.comments] == ["# a"]


def test_empty_text() -> None:
    layout = read_layout("")
    assert (layout.comments, layout.complete, layout.lines) == ([], True, [""])
