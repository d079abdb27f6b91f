"""What of a task's workspace is not written into a user's folder."""

import pytest

from cli.trees import find_repositories, is_left_out


@pytest.mark.parametrize(
    "path",
    [".git/x", "a/.GIT", ".git /x", ".git. ./x", ".git::$INDEX_ALLOCATION/x", "git~1/x", ".g\u200cit/x", "a\\.git\\x"],
)
def test_what_some_file_system_takes_for_git_is_left_out(path: str) -> None:
    assert is_left_out(path)


def test_other_names_are_kept() -> None:
    kept = [".github/x", ".gitignore", "git/x", "x.git/y", "HEAD", "objects/HEAD", "a/objects/x"]
    assert not any(is_left_out(path, find_repositories(kept)) for path in kept)


def test_a_folder_that_git_takes_for_a_repository_is_left_out() -> None:
    paths = ["a/bare/Head", "a/bare/config", "a/bare/objects/x", "a/bare/refs/x", "a/b", "w/HEAD", "w/commondir"]
    found = find_repositories(paths)
    assert [path for path in paths if not is_left_out(path, found)] == ["a/b"]
