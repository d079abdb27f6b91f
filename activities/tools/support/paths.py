"""Access to a workspace's files: every path is walked by directory descriptors and never through a link.

A path cannot leave the workspace by `..`, an absolute path or a symbolic link (dangling, or swapped in while we look),
and opening a FIFO or a device neither hangs nor does anything. Everything that reads or changes a workspace uses this
class: a command may replace a folder by a link at any moment, so a path must never be given to the system as a whole.
"""

import contextlib
import errno
import os
import secrets
import stat
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from domain.ignored import MAX_CHARS, IgnoreRules
from domain.policy.rules import MAX_DEPTH, PathError, path_parts

_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_FILE = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC
_NEW = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC


@dataclass(frozen=True)
class DirectoryEntry:
    path: str
    kind: str  # file | folder | link | special
    size: int


class Workspace:
    def __init__(self, root: Path) -> None:
        self._root = root

    def read(self, path: str, limit: int) -> bytes:
        """The file's first `limit` bytes."""
        with self.open(path) as fd:
            content = bytearray()
            while len(content) < limit and (chunk := os.read(fd, min(1 << 20, limit - len(content)))):
                content += chunk
        return bytes(content)

    @contextlib.contextmanager
    def open(self, path: str) -> Iterator[int]:
        """A descriptor of an existing plain file, for reading."""
        *folders, name = self._file_parts(path)
        with _explain_errors(path), self.folder(folders) as folder:
            _check_plain(path, os.stat(name, dir_fd=folder, follow_symlinks=False).st_mode)
            fd = os.open(name, _FILE, dir_fd=folder)
            try:
                _check_plain(path, os.fstat(fd).st_mode)  # it may have been swapped since
                yield fd
            finally:
                os.close(fd)

    def write(self, path: str, content: bytes) -> bool:
        """Replace or create the file in one step; True if it is new. Missing folders are made."""
        *folders, name = self._file_parts(path)
        with _explain_errors(path), self.folder(folders, create=True) as folder:
            old = _mode(name, folder)
            if old is not None:
                _check_plain(path, old)
            _replace(folder, name, [(0, content)], len(content), None if old is None else stat.S_IMODE(old) & 0o777)
        return old is None

    def put(self, path: str, pieces: Sequence[tuple[int, bytes]], length: int, mode: int) -> os.stat_result:
        """Replace any file or link of this name by a file of `length` bytes: these pieces, with holes between.

        The returned stat is that of the new file, even if the name leads to another one by now.
        """
        *folders, name = self._file_parts(path)
        with _explain_errors(path), self.folder(folders, create=True) as folder:
            return _replace(folder, name, pieces, length, mode)

    def link(self, path: str, target: str) -> None:
        """Replace any file or link of this name by a symbolic link; its target is not checked."""
        *folders, name = self._file_parts(path)
        with _explain_errors(path), self.folder(folders, create=True) as folder, _temporary(folder) as temporary:
            os.symlink(target, temporary, dir_fd=folder)
            if os.geteuid() == 0:
                owner = os.fstat(folder)
                os.chown(temporary, owner.st_uid, owner.st_gid, dir_fd=folder, follow_symlinks=False)
            os.rename(temporary, name, src_dir_fd=folder, dst_dir_fd=folder)

    def make_folder(self, path: str) -> None:
        """Make the folder and its parents; a file or link with the same name is replaced."""
        *folders, name = self._file_parts(path)
        with _explain_errors(path), self.folder(folders, create=True) as folder:
            old = _mode(name, folder)
            if old is not None and not stat.S_ISDIR(old):
                os.unlink(name, dir_fd=folder)
            _make_folder(name, folder)

    def set_folder_mode(self, path: str, mode: int) -> None:
        with _explain_errors(path), self.folder(path_parts(path)) as folder:
            os.fchmod(folder, mode)

    def remove(self, path: str) -> None:
        """Remove a file, a link or an empty folder; it is not an error if it is missing."""
        *folders, name = self._file_parts(path)
        with _explain_errors(path), contextlib.suppress(FileNotFoundError), self.folder(folders) as folder:
            if stat.S_ISDIR(os.stat(name, dir_fd=folder, follow_symlinks=False).st_mode):
                os.rmdir(name, dir_fd=folder)
            else:
                os.unlink(name, dir_fd=folder)

    def exists(self) -> bool:
        try:
            with self.folder(()):
                return True
        except OSError:
            return False

    def link_target(self, path: str) -> str | None:
        """Where a link leads; None for anything else."""
        *folders, name = self._file_parts(path)
        with _explain_errors(path), self.folder(folders) as folder:
            try:
                return os.readlink(name, dir_fd=folder)
            except OSError as error:
                if error.errno == errno.EINVAL:
                    return None
                raise

    def is_missing(self, path: str) -> bool:
        """Whether this name is free; a folder that cannot be searched does not count as empty."""
        *folders, name = self._file_parts(path)
        try:
            with self.folder(folders) as folder:
                os.stat(name, dir_fd=folder, follow_symlinks=False)
        except (FileNotFoundError, NotADirectoryError):
            return True
        except OSError as error:
            return error.errno == errno.ELOOP  # a link where a folder was
        return False

    def walk(self, path: str, *, recursive: bool, without: IgnoreRules | None = None) -> Iterator[DirectoryEntry]:
        """The entries of a folder, by name, folders before their content; the path of a file gives only that file.
        `without`: the rules of the folders above; then what git ignores, and .git, is left out, as in each repository
        below, if the walk is recursive."""
        names = path_parts(path)
        with _explain_errors(path):
            if names:
                with self.folder(names[:-1]) as folder:
                    mode = os.stat(names[-1], dir_fd=folder, follow_symlinks=False)
                if not stat.S_ISDIR(mode.st_mode):
                    yield DirectoryEntry("/".join(names), _kind(mode.st_mode), mode.st_size)
                    return
            yield from self._entries(names, recursive, without)

    def ignore_rules(self, path: str) -> IgnoreRules | None:
        """The rules above this path; None if there is no git repository. Rules that ignore the path itself do not
        count, because somebody named it."""
        names, rules = path_parts(path), None
        for depth in range(len(names)):
            above = names[:depth]
            if rules is None and not self.is_missing("/".join((*above, ".git"))):
                rules = self._rules_of_repository(above)
            if rules is None:
                continue
            rules = self._with_ignore_file(rules, above)
            if names[depth] == ".git" or rules.ignores("/".join(names[: depth + 1]), True):
                return IgnoreRules()
        return rules

    def _rules_of_repository(self, names: tuple[str, ...]) -> IgnoreRules:
        folder = "".join(f"{name}/" for name in names)
        return self._with_rules_of(IgnoreRules(), f"{folder}.git/info/exclude", folder)

    def _with_ignore_file(self, rules: IgnoreRules, names: tuple[str, ...]) -> IgnoreRules:
        folder = "".join(f"{name}/" for name in names)
        return self._with_rules_of(rules, f"{folder}.gitignore", folder)

    def _with_rules_of(self, rules: IgnoreRules, file: str, folder: str) -> IgnoreRules:
        try:
            text = self.read(file, MAX_CHARS).decode(errors="replace")
        except PathError:
            return rules
        return rules.within(folder, text)

    def _entries(
        self, names: tuple[str, ...], recursive: bool, without: IgnoreRules | None
    ) -> Iterator[DirectoryEntry]:
        with self.folder(names) as folder, os.scandir(folder) as found:
            entries = {entry.name: info for entry in found if (info := _info(entry))}
        if without is None and recursive and ".git" in entries:
            without = self._rules_of_repository(names)
        if without is not None and ".gitignore" in entries:
            without = self._with_ignore_file(without, names)
        for name in sorted(entries):
            here = (*names, name)
            kind = _kind(entries[name].st_mode)
            if without is not None and (name == ".git" or without.ignores("/".join(here), kind == "folder")):
                continue
            yield DirectoryEntry("/".join(here), kind, entries[name].st_size)
            if recursive and kind == "folder" and len(here) < MAX_DEPTH:
                # it was removed, or replaced by a link, during the walk: leave it out
                with contextlib.suppress(OSError):
                    yield from self._entries(here, recursive, without)

    @contextlib.contextmanager
    def folder(self, names: Sequence[str], create: bool = False) -> Iterator[int]:
        """A descriptor of a folder, by the names on the way to it."""
        fd = os.open(self._root, _FOLDER)
        try:
            for name in names:
                if create:
                    _make_folder(name, fd)
                below = os.open(name, _FOLDER, dir_fd=fd)
                os.close(fd)
                fd = below
            yield fd
        finally:
            os.close(fd)

    def _file_parts(self, path: str) -> tuple[str, ...]:
        names = path_parts(path)
        if not names or path.endswith("/"):
            raise PathError(f"{path!r} is a folder, not a file.")
        return names


def _replace(
    folder: int, name: str, pieces: Sequence[tuple[int, bytes]], length: int, mode: int | None
) -> os.stat_result:
    """Write a new file beside the old one, then rename it. So nobody sees half of it, and the old file, which may have
    another name outside, is not touched."""
    with _temporary(folder) as temporary:
        fd = os.open(temporary, _NEW, 0o644, dir_fd=folder)
        with os.fdopen(fd, "wb") as file:
            for offset, content in pieces:
                file.seek(offset)
                file.write(content)
            file.truncate(length)
            _own_like(folder, fd)
            if mode is not None:
                os.fchmod(fd, mode)
            os.rename(temporary, name, src_dir_fd=folder, dst_dir_fd=folder)
            return os.fstat(fd)


@contextlib.contextmanager
def _temporary(folder: int) -> Iterator[str]:
    """A temporary name for an entry that is renamed when it is complete; it is removed if that fails."""
    name = f".{secrets.token_hex(8)}.tmp"
    try:
        yield name
    except BaseException:
        with contextlib.suppress(FileNotFoundError):
            os.unlink(name, dir_fd=folder)
        raise


def _make_folder(name: str, parent: int) -> None:
    with contextlib.suppress(FileExistsError):
        os.mkdir(name, 0o755, dir_fd=parent)
        fd = os.open(name, _FOLDER, dir_fd=parent)
        try:
            _own_like(parent, fd)
        finally:
            os.close(fd)


def _own_like(folder: int, fd: int) -> None:
    """Give files of a root worker to the sandbox's user, who owns the folder."""
    if os.geteuid() == 0:
        owner = os.fstat(folder)
        os.fchown(fd, owner.st_uid, owner.st_gid)


def _info(entry: "os.DirEntry[str]") -> os.stat_result | None:
    try:
        return entry.stat(follow_symlinks=False)
    except FileNotFoundError:
        return None  # a command removed it in between


def _mode(name: str, folder: int) -> int | None:
    try:
        return os.stat(name, dir_fd=folder, follow_symlinks=False).st_mode
    except FileNotFoundError:
        return None


def _kind(mode: int) -> str:
    kinds = {stat.S_IFREG: "file", stat.S_IFDIR: "folder", stat.S_IFLNK: "link"}
    return kinds.get(stat.S_IFMT(mode), "special")


def _check_plain(path: str, mode: int) -> None:
    kind = _kind(mode)
    if kind == "link":
        raise PathError(f"{path!r} is a symbolic link, and links are not followed here.")
    if kind != "file":
        raise PathError(f"{path!r} is not a plain file but a {'folder' if kind == 'folder' else 'special file'}.")


@contextlib.contextmanager
def _explain_errors(path: str) -> Iterator[None]:
    """Turn errors of the system into sentences for the model."""
    try:
        yield
    except FileNotFoundError:
        raise PathError(f"{path!r} does not exist. list_files shows what does.") from None
    except (NotADirectoryError, FileExistsError, IsADirectoryError):
        raise PathError(f"Something on the way to {path!r} is not a folder (links are not followed).") from None
    except OSError as error:
        raise PathError(f"{path!r} cannot be used: {os.strerror(error.errno or 0)}.") from None
