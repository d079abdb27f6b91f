"""What people who approve a call see of files. Those that a command would run are shown with their content, and must
still have it when the command runs; of a file that a call would write they see the change."""

import asyncio
import contextlib
import hashlib
import json
import os
import posixpath
import re
import shlex
from collections.abc import Iterable, Iterator, Mapping
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

from activities.tools.support.paths import Workspace
from activities.tools.tool import FileChange, Tool
from domain.differences import diff
from domain.policy.rules import PathError, SubjectKind, canonical_path, command_spellings, commands_in, fold_command
from domain.sessions.input_request import ApprovedFile, ApprovedFiles, InputRequest, MoreFiles
from store import files, workspaces
from store.database import Pool
from store.workspaces import Manifest, ManifestEntry

_CHARACTERS = 20_000  # of all files together that people are shown
_SHOWN = 50  # files
_SPARSE = 20_000_000  # bytes of a file with holes, which is hashed as it is read
_CHUNK = 1 << 20
_LARGEST = 1_000_000  # bytes; larger files are not compared


def runs_commands(tool: Tool) -> bool:
    return tool.subject is not None and tool.subject.kind is SubjectKind.COMMAND


def command_of(tool: Tool, arguments: Any) -> str | None:
    """The command of a call, if its tool runs one."""
    if tool.subject is None or not runs_commands(tool) or not isinstance(arguments, dict):
        return None
    value = tool.subject.value(arguments)
    return "\n".join(map(str, value)) if isinstance(value, list) else str(value)


async def files_to_approve(pool: Pool, tenant: str, workspace_id: str, command: str) -> ApprovedFiles:
    _, manifest = await workspaces.get(pool, tenant, workspace_id)
    paths = await asyncio.to_thread(_find_named, command, manifest)
    found: list[ApprovedFile] = []
    room = _CHARACTERS
    for path in paths[:_SHOWN]:
        shown = await _show_file(pool, tenant, path, manifest[path], room)
        room -= len(shown.text or "")
        found.append(shown)
    more = {path: await _find_digest(pool, tenant, manifest[path]) for path in paths[_SHOWN:]}
    return ApprovedFiles(files=found, more_files=MoreFiles(count=len(more), sha256=_sum(more)) if more else None)


async def find_changed(
    pool: Pool, tenant: str, workspace_id: str, folder: Path, tool: Tool, approval: InputRequest
) -> list[str]:
    """The files whose content differs from what people saw: changed, removed, or added since.

    A person who approved a changed command is expected to know which files that one runs.
    """
    command = None if "arguments" in approval.answer else command_of(tool, approval.details["arguments"])
    approved = ApprovedFiles.model_validate(approval.details)
    shown = {one.path: one.sha256 for one in approved.files}
    _, manifest = await workspaces.get(pool, tenant, workspace_id)
    paths = {*await asyncio.to_thread(_find_named, command or "", manifest), *shown}
    now = await asyncio.to_thread(lambda: {path: _digest(folder, path) for path in paths})
    more = {path: digest for path, digest in now.items() if path not in shown}
    if approved.more_files is not None and _sum(more) == approved.more_files.sha256:
        now = {path: digest for path, digest in now.items() if path in shown}
    return sorted(path for path, digest in now.items() if digest != shown.get(path))


def _find_named(command: str, manifest: Manifest) -> list[str]:
    links = {path: entry["target"] for path, entry in manifest.items() if entry.get("kind") == "link"}
    return files_named(command, (path for path, entry in manifest.items() if "kind" not in entry), links)


async def _show_file(pool: Pool, tenant: str, path: str, entry: ManifestEntry, room: int) -> ApprovedFile:
    digest = await _find_digest(pool, tenant, entry)
    if "target" in entry:
        return ApprovedFile(path=path, sha256=digest, size=0, text=f"a link to {entry['target']}")
    size = entry.get("length", entry["size"])
    text = await _text(pool, tenant, digest) if size <= room and "extents" not in entry else None
    return ApprovedFile(path=path, sha256=digest, size=size, text=text)


async def _find_digest(pool: Pool, tenant: str, entry: ManifestEntry) -> str:
    """The digest that _digest finds on a worker whose file is unchanged since it was saved."""
    if "target" in entry:
        return _link_digest(entry["target"])
    if "extents" in entry and entry["length"] <= _SPARSE:
        content = (await files.get_blobs(pool, tenant, [entry["sha256"]])).get(entry["sha256"], b"")
        return hashlib.sha256(workspaces.with_holes(entry, content)).hexdigest()
    return entry["sha256"]


def _link_digest(target: str) -> str:
    return hashlib.sha256(os.fsencode(f"link {target}")).hexdigest()


def _sum(digests: Mapping[str, str | None]) -> str:
    return hashlib.sha256(json.dumps(sorted(digests.items())).encode()).hexdigest()


async def _text(pool: Pool, tenant: str, digest: str) -> str | None:
    content = (await files.get_blobs(pool, tenant, [digest])).get(digest)
    try:
        return None if content is None else content.decode()
    except UnicodeDecodeError:
        return None


def _digest(folder: Path, path: str) -> str | None:
    digest = hashlib.sha256()
    workspace = Workspace(folder)
    try:
        if (target := workspace.link_target(path)) is not None:
            return _link_digest(target)
        with workspace.open(path) as fd, open(fd, "rb", closefd=False) as file:
            while chunk := file.read(_CHUNK):
                digest.update(chunk)
    except PathError:
        return None
    return digest.hexdigest()


async def diff_of(pool: Pool, tenant: str, workspace_id: str, change: FileChange) -> dict[str, str]:
    """The change that a call would make to a file: {"diff"}, or {"note"} with the reason why there is none. The file is
    read as the last tool left it."""
    path = canonical_path(change.path)
    _, manifest = await workspaces.get(pool, tenant, workspace_id)
    entry = manifest.get(path)
    if entry is not None and "kind" in entry:
        return {"note": f"{path} is a {entry['kind']} now, so it cannot be compared."}
    if entry is not None and (size := entry.get("length", entry["size"])) > _LARGEST:
        return {"note": f"{path} has {size:,} bytes now, too many to be compared."}
    before: str | None = None
    if entry is not None:
        content = (await files.get_blobs(pool, tenant, [entry["sha256"]])).get(entry["sha256"])
        if content is None:
            return {"note": f"What {path} holds now is no longer kept, so it cannot be compared."}
        try:
            before = workspaces.with_holes(entry, content).decode()
        except UnicodeDecodeError:
            return {"note": f"{path} is not text now ({entry['size']:,} bytes), so it cannot be compared."}
    after = change.after(before)
    if after is None:
        return {"note": f"As {path} is now, this call would fail and change nothing."}
    if before == after:
        return {"note": f"{path} holds exactly this already."}
    return {"diff": await asyncio.to_thread(diff, path, before, after)}


# The files of a workspace that a command names and so may run.


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
        ways = (posixpath.join(posixpath.dirname(link), links[link], rest) for link, rest in passed)
        names = {posixpath.normpath(way) for way in ways} - known
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
