"""Files and folders for a workspace: the files that `.gitignore` does not exclude, packed into one archive."""

import io
import os
import stat
import tarfile
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path

import click

from cli.api import Api
from cli.render.output import clean, size
from domain.ignored import IgnoreRules
from settings import Settings

SHOWN = 20  # problems of one folder
# the whole history, which may be huge and contain secrets that were removed since
NEVER = frozenset({".git"})


@dataclass
class FolderFiles:
    """The files of a folder by their path in it, and the reasons why the folder cannot be used."""

    root: Path
    files: dict[str, Path] = field(default_factory=dict)
    problems: list[str] = field(default_factory=list)
    bytes: int = 0


def pack_folder(root: Path, settings: Settings) -> bytes:
    """A compressed tar file of the folder. All problems are reported together, before anything is sent."""
    found = _collect(root, settings)
    if not found.files and not found.problems:
        found.problems.append("there is no file in it that git would not ignore")
    packed = b"" if found.problems else _pack(found)
    if len(packed) > settings.max_file_bytes:
        most = size(settings.max_file_bytes)
        found.problems.append(f"packed it has {size(len(packed))}, and an upload has at most {most}")
    if found.problems:
        rest = len(found.problems) - SHOWN
        lines = found.problems[:SHOWN] + ([f"and {rest} more"] if rest > 0 else [])
        raise click.UsageError(f"--dir {root}: " + clean("\n  ".join(["this folder cannot be used:", *lines])))
    return packed


def _collect(root: Path, settings: Settings) -> FolderFiles:
    found = FolderFiles(root.resolve())
    _walk(found, found.root, _ignored_above(found.root), settings)
    if len(found.files) > settings.workspace_files:
        found.problems.append(f"too many files; a workspace holds {settings.workspace_files:,}")
    if settings.workspace_bytes and found.bytes > settings.workspace_bytes:
        found.problems.append(f"{size(found.bytes)} in all; a workspace holds {size(settings.workspace_bytes)}")
    return found


def _walk(found: FolderFiles, folder: Path, above: IgnoreRules, settings: Settings) -> None:
    rules = _with_ignore_file(above, folder)
    try:
        entries = sorted(os.scandir(folder), key=lambda entry: entry.name)
    except OSError as error:
        found.problems.append(f"{_name_of(found, folder)}: {error.strerror}")
        return
    for entry in entries:
        if len(found.files) > settings.workspace_files:
            return  # a home folder may have a million files
        path = Path(entry.path)
        if entry.name in NEVER or rules.ignores(path.as_posix(), entry.is_dir(follow_symlinks=False)):
            continue
        if entry.is_symlink():
            _take_link(found, path, settings)
        elif entry.is_dir():
            _walk(found, path, rules, settings)
        else:
            _take(found, path, path, settings)


def _take_link(found: FolderFiles, path: Path, settings: Settings) -> None:
    target = path.resolve()
    # what the user did not name must not be uploaded
    if not target.is_relative_to(found.root):
        found.problems.append(f"{_name_of(found, path)}: a link out of the folder, to {target}")
    elif target.is_file():
        _take(found, path, target, settings)
    elif not target.exists():
        found.problems.append(f"{_name_of(found, path)}: a link to nothing")


def _take(found: FolderFiles, path: Path, source: Path, settings: Settings) -> None:
    known = source.stat()
    name = _name_of(found, path)
    if not stat.S_ISREG(known.st_mode):
        found.problems.append(f"{name}: not a file, a folder or a link")
    elif known.st_size > settings.workspace_file_bytes:
        found.problems.append(
            f"{name}: {size(known.st_size)}; a file has at most {size(settings.workspace_file_bytes)}"
        )
    elif not os.access(source, os.R_OK):
        found.problems.append(f"{name}: cannot be read")
    else:
        found.files[name] = source
        found.bytes += known.st_size


def _name_of(found: FolderFiles, path: Path) -> str:
    return path.relative_to(found.root).as_posix()


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


def _pack(found: FolderFiles) -> bytes:
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w:gz") as archive:
        for name, source in found.files.items():
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
