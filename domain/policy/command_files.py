"""The files of a workspace that a command names and so may run."""

import contextlib
import re
import shlex
from collections.abc import Iterable
from fnmatch import fnmatchcase

from domain.policy.commands import commands_in, folded, spellings
from domain.policy.subjects import named

MOST_FILES = 50
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


def files_named(command: str, paths: Iterable[str]) -> list[str]:
    """Those of `paths` to which a token of the command may lead, in whichever folder it runs; too many rather than too
    few."""
    known = sorted(paths)
    tokens = _tokens(command)
    exact = {named(token) for token in tokens}
    ends = tuple(f"/{name}" for name in exact if name != ".")
    globs = [name for name in exact if set("*?[") & set(name)]
    found = [
        path
        for path in known
        if path in exact
        or path.endswith(ends)
        or any(fnmatchcase(path, glob) or fnmatchcase(path, f"*/{glob}") for glob in globs)
    ]
    return found[:MOST_FILES]


def _tokens(command: str) -> set[str]:
    found: set[str] = set()
    for part in commands_in(command):
        tokens = folded(part).split(" ")
        with contextlib.suppress(ValueError):  # the command may have been cut in the middle of quotes
            tokens += shlex.split(part)
        for token in tokens:
            bare = token.lstrip("<>0123456789") or token
            found |= {token, bare, token.partition("=")[2]}
            if _MODULE.fullmatch(token):  # python -m
                place = token.replace(".", "/")
                found |= {f"{place}.py", f"{place}/__main__.py"}
        for spelling in spellings(part):
            found.update(_UNNAMED.get(spelling.split(" ")[0], ()))
    return found - {""}
