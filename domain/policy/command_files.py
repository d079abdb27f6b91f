"""The files of a workspace that a command names and so may run."""

import contextlib
import posixpath
import re
import shlex
from collections.abc import Iterable, Iterator, Mapping
from fnmatch import fnmatchcase

from domain.policy.rules import canonical_path, command_spellings, commands_in, fold_command

_MOST_LINKS = 40  # one after the other, as Linux has it
# beyond these a command counts as naming everything: nobody can wait until all of it is looked for
_MOST_NAMES, _MOST_GLOBS = 10_000, 40
# files that a program runs although the command does not name them
_UNNAMED = {
    "make": ("Makefile", "makefile", "GNUmakefile"),
    "gmake": ("Makefile", "makefile", "GNUmakefile"),
    "just": ("justfile", "Justfile"),
    "npm": ("package.json",),
    "npx": ("package.json",),
    "pnpm": ("package.json",),
    "yarn": ("package.json",),
    "bun": ("package.json",),
    "pytest": ("conftest.py", "pyproject.toml", "pytest.ini", "setup.cfg"),
    "tox": ("tox.ini", "pyproject.toml", "setup.cfg"),
    "nox": ("noxfile.py",),
    "rake": ("Rakefile",),
    "cargo": ("build.rs", "Cargo.toml"),
    "gradle": ("build.gradle", "build.gradle.kts"),
    "mvn": ("pom.xml",),
    "docker": ("Dockerfile", "compose.yaml", "docker-compose.yml"),
}
_MODULE = re.compile(r"[A-Za-z_]\w*(\.[A-Za-z_]\w*)*")


def files_named(command: str, files: Iterable[str], links: Mapping[str, str] | None = None) -> list[str]:
    """Those of the files to which a token of the command may lead, in whichever folder it runs, and the links (path ->
    target) on the way to them; too many rather than too few. Those near the top of the workspace come first."""
    links = links or {}
    paths = [*files, *links]
    found: set[str] = set()
    known: set[str] = set()
    names = {name for token in _tokens(command) for name in _names(token)}
    by_end: dict[str, list[str]] = {}
    for link in links:
        for end in _ends(link):
            by_end.setdefault(end, []).append(link)
    for _ in range(_MOST_LINKS):
        known |= names
        globs = [name for name in names if set("*?[") & set(name)]
        if len(known) > _MOST_NAMES or len(globs) > _MOST_GLOBS:
            found = set(paths)
            break
        reached = {path for path in paths if _leads_to(path, names, globs)}
        passed = {(path, "") for path in reached if path in links} | set(_links_before(names, by_end))
        found |= reached | {link for link, _ in passed}
        names = {_target(link, links[link], rest) for link, rest in passed} - known
        if not names:
            break
    return sorted(found, key=lambda path: (path.count("/"), path))


def _names(token: str) -> set[str]:
    """The names by which a workspace knows what a token leads to. Of a path that begins elsewhere, or who knows where
    before the command runs, its last name."""
    plain = canonical_path(token)
    computed = plain.startswith("/") or any(one == ".." or set("$~") & set(one) for one in plain.split("/"))
    name = plain.rpartition("/")[2] if computed else plain
    return {plain, name, f"{name}/__main__.py"}  # Python runs a folder too


def _leads_to(path: str, names: set[str], globs: list[str]) -> bool:
    return not names.isdisjoint(_ends(path)) or any(
        fnmatchcase(path, glob) or fnmatchcase(path, f"*/{glob}") for glob in globs
    )


def _ends(path: str) -> list[str]:
    """The path as it is named from the top and from each folder on the way to it."""
    parts = path.split("/")
    return ["/".join(parts[place:]) for place in range(len(parts))]


def _links_before(names: set[str], by_end: Mapping[str, list[str]]) -> Iterator[tuple[str, str]]:
    """The links through which a name leads, each with the rest of the name behind it."""
    for name in names:
        parts = name.split("/")
        for place in range(1, len(parts)):
            for link in by_end.get("/".join(parts[:place]), ()):
                yield link, "/".join(parts[place:])


def _target(link: str, target: str, rest: str) -> str:
    return posixpath.normpath(posixpath.join(posixpath.dirname(link), target, rest))


def _tokens(command: str) -> set[str]:
    found: set[str] = set()
    for part in commands_in(command):
        tokens = fold_command(part).split(" ")
        with contextlib.suppress(ValueError):  # the command may have been cut in the middle of quotes
            tokens += shlex.split(part)
        for token in tokens:
            bare = token.lstrip("<>0123456789") or token
            found |= {token, bare, token.partition("=")[2]}
            if _MODULE.fullmatch(token):  # python -m
                place = token.replace(".", "/")
                found |= {f"{place}.py", f"{place}/__main__.py"}
        for spelling in command_spellings(part):
            found.update(_UNNAMED.get(spelling.split(" ")[0], ()))
    return found - {""}
