"""Files and folders for a workspace: the files that `.gitignore` does not exclude, packed into one archive."""

import io
import os
import stat
import tarfile
import unicodedata
from collections.abc import Iterable, Iterator, Set
from pathlib import Path

import click

from cli.api import Api
from cli.render.output import clean, size
from domain.ignored import IgnoreRules
from settings import Settings

SHOWN = 20  # problems of one folder
# the whole history, which may be huge and contain secrets that were removed since; and hooks, which a commit runs
NEVER = frozenset({".git", "git~1"})


def pack_folder(root: Path, settings: Settings) -> bytes:
    """A compressed tar file of the folder. All problems are reported together, before anything is sent."""
    shown, root = root, root.resolve()
    files: dict[str, Path] = {}
    problems: list[str] = []
    taken = 0
    try:
        for path in _walk(root, root, _ignored_above(root)):
            if len(files) > settings.workspace_files:  # a home folder may have a million
                break
            name, source = path.relative_to(root).as_posix(), path.resolve()
            if fault := _find_fault(root, source, settings):
                problems.append(f"{name}: {fault}")
            else:
                files[name] = source
                taken += source.stat().st_size
    except OSError as error:
        problems.append(f"{error.filename}: {error.strerror}")
    if not files and not problems:
        problems.append("there is no file in it that git would not ignore")
    if len(files) > settings.workspace_files:
        problems.append(f"too many files; a workspace holds {settings.workspace_files:,}")
    if settings.workspace_bytes and taken > settings.workspace_bytes:
        problems.append(f"{size(taken)} in all; a workspace holds {size(settings.workspace_bytes)}")
    packed = b"" if problems else _pack(files)
    if len(packed) > settings.max_file_bytes:
        problems.append(f"packed it has {size(len(packed))}, and an upload has at most {size(settings.max_file_bytes)}")
    if problems:
        rest = len(problems) - SHOWN
        lines = problems[:SHOWN] + ([f"and {rest} more"] if rest > 0 else [])
        raise click.UsageError(f"--dir {shown}: " + clean("\n  ".join(["this folder cannot be used:", *lines])))
    return packed


def is_left_out(path: str, repositories: Set[tuple[str, ...]] = frozenset()) -> bool:
    parts = _fold(path)
    return not NEVER.isdisjoint(parts) or any(parts[:end] in repositories for end in range(len(parts)))


def find_repositories(paths: Iterable[str]) -> set[tuple[str, ...]]:
    """The folders that git takes for repositories of their own, because of what is in them; it obeys their settings."""
    known = {parts[: end + 1] for path in paths if (parts := _fold(path)) for end in range(len(parts))}
    folders = [one[:-1] for one in known if one[-1] == "head"]
    return {one for one in folders if (*one, "commondir") in known or {(*one, "objects"), (*one, "refs")} <= known}


def _fold(path: str) -> tuple[str, ...]:
    """The names as the file systems see them that see the fewest differences: most ignore the case, NTFS also spaces
    and dots at the end and what follows a colon, HFS+ what is not shown."""
    shown = "".join(one for one in path.casefold() if unicodedata.category(one) != "Cf")
    return tuple(part.split(":")[0].rstrip(" .") for part in shown.replace("\\", "/").split("/"))


def _walk(folder: Path, root: Path, above: IgnoreRules) -> Iterator[Path]:
    """All that is not ignored, but folders, and links to folders of the same tree."""
    rules = _with_ignore_file(above, folder)
    for path in sorted(folder.iterdir()):
        real = path.is_dir() and not path.is_symlink()
        if is_left_out(path.name) or rules.ignores(path.as_posix(), real):
            continue
        if real:
            yield from _walk(path, root, rules)
        elif not path.is_dir() or not path.resolve().is_relative_to(root):
            yield path


def _find_fault(root: Path, source: Path, settings: Settings) -> str | None:
    """Why a file cannot be sent; what the user did not name must not be uploaded."""
    if not source.is_relative_to(root):
        return f"a link out of the folder, to {source}"
    if not source.exists():
        return "a link to nothing"
    known = source.stat()
    if not stat.S_ISREG(known.st_mode):
        return "not a file, a folder or a link"
    if known.st_size > settings.workspace_file_bytes:
        return f"{size(known.st_size)}; a file has at most {size(settings.workspace_file_bytes)}"
    return None if os.access(source, os.R_OK) else "cannot be read"


def _ignored_above(root: Path) -> IgnoreRules:
    """The ignore rules of the folders above, up to the git repository. Rules that ignore this folder as a whole do not
    count, because the user named it explicitly."""
    nothing = rules = IgnoreRules()
    if (root / ".git").exists():
        return nothing
    for number, folder in enumerate(root.parents):
        if (folder / ".git").exists():
            for one in reversed(root.parents[: number + 1]):
                rules = _with_ignore_file(rules, one)
            return nothing if rules.ignores(root.as_posix(), True) else rules
    return nothing


def _with_ignore_file(rules: IgnoreRules, folder: Path) -> IgnoreRules:
    try:
        text = (folder / ".gitignore").read_text(errors="replace")
    except OSError:
        return rules
    return rules.within(f"{folder.as_posix().rstrip('/')}/", text)


def _pack(files: dict[str, Path]) -> bytes:
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w:gz") as archive:
        for name, source in files.items():
            info = tarfile.TarInfo(name)
            known = source.stat()
            # the size of now: a file that has grown since the check would otherwise break the archive
            info.size, info.mode, info.mtime = known.st_size, known.st_mode & 0o777, int(known.st_mtime)
            with source.open("rb") as content:
                archive.addfile(info, content)
    return packed.getvalue()


def upload_files(api: Api, paths: Iterable[Path]) -> list[str]:
    """The ids of the uploaded files. In the workspace a relative path is kept, of any other only the name."""
    found = []
    for path in dict.fromkeys(paths):
        # the server refuses other paths, because they would lead out of the workspace
        plain = not path.is_absolute() and ".." not in path.parts
        try:
            found.append(api.upload(path, name=path.as_posix() if plain else path.name).file_id)
        except OSError as error:
            raise click.UsageError(f"{error.filename}: {error.strerror}") from None
    return found


def upload_folder(api: Api, packed: bytes) -> str:
    return api.upload(("tree.tar.gz", packed)).file_id
