"""What `.gitignore` files exclude, exactly as git reads them."""

from dataclasses import dataclass
from typing import Self

from pathspec import GitIgnoreSpec

MAX_CHARS = 32_000  # of one file


@dataclass(frozen=True)
class IgnoreRules:
    """The rules of the files on the way to a folder, each with the folder that it is in."""

    specs: tuple[tuple[str, GitIgnoreSpec], ...] = ()

    def within(self, folder: str, text: str) -> Self:
        """With the rules of a further file. `folder`: "" or a path that ends with a slash."""
        # RE2, because a pattern of somebody else's can keep Python's own expressions busy without end
        spec = GitIgnoreSpec.from_lines(text[:MAX_CHARS].splitlines(), backend="re2")
        return type(self)((*self.specs, (folder, spec)))

    def ignores(self, path: str, is_folder: bool) -> bool:
        """The innermost file with a matching rule decides, as in git."""
        for folder, spec in reversed(self.specs):
            decided = spec.check_file(path[len(folder) :] + ("/" if is_folder else "")).include
            if decided is not None:
                return decided
        return False
