from domain.differences import DiffRow, compare, diff, read_diff


def _lines(rows: list[DiffRow]) -> list[tuple[str, int | None, int | None, list[str]]]:
    return [(row.kind, row.before, row.after, row.parts) for row in rows]


def test_changed_parts_of_a_line_are_marked() -> None:
    assert _lines(compare("cd a\ngit push origin fix", "cd a\ngit push --dry-run origin fix\n")) == [
        ("same", 1, 1, ["cd a"]),
        ("removed", 2, None, ["git push ", "", "origin fix"]),
        ("added", None, 2, ["git push ", "--dry-run ", "origin fix"]),
    ]
    assert compare("equal", "equal\n") == []
    assert [row.parts for row in compare("one", "quite different")] == [["one"], ["quite different"]]


def test_lines_are_numbered_on_both_sides_and_signs_count_inside_of_hunks_only() -> None:
    before = "".join(f"line {n}\n" for n in range(40))
    after = before.replace("line 5\n", "").replace("line 30\n", "line 30\n-- a\n+++ b\n")
    rows = _lines(read_diff(diff("a.sql", before, after)))
    assert rows[0] == ("file", None, None, ["a.sql"])
    assert ("removed", 6, None, ["line 5"]) in rows and ("same", 7, 6, ["line 6"]) in rows
    assert ("added", None, 31, ["-- a"]) in rows and ("added", None, 32, ["+++ b"]) in rows
    assert [row[0] for row in rows].count("gap") == 1
    assert _lines(read_diff("- not a diff\n+ but a text")) == [
        ("note", None, None, ["- not a diff"]),
        ("note", None, None, ["+ but a text"]),
    ]
    huge = f"@@ -{'1' * 5_000} +1 @@"
    assert _lines(read_diff(huge)) == [("note", None, None, [huge])]
