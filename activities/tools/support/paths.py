"""The only door to a workspace's files: every path is walked by directory descriptors and never through a link.

A path cannot leave the workspace by `..`, an absolute path or a symbolic link (dangling, or swapped in while we look),
and opening a FIFO or a device neither hangs nor does anything.
"""

import contextlib
import os
import secrets
import stat
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from domain.policy.subjects import MAX_DEPTH, PathError, parts

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
        with _told(path), self._folder(folders) as folder:
            _plain(path, os.stat(name, dir_fd=folder, follow_symlinks=False).st_mode)
            fd = os.open(name, _FILE, dir_fd=folder)
            try:
                _plain(path, os.fstat(fd).st_mode)  # it may have been swapped since
                yield fd
            finally:
                os.close(fd)

    def write(self, path: str, content: bytes) -> bool:
        """Replace or create the file in one step; True if it is new. Missing folders are made."""
        *folders, name = self._file_parts(path)
        with _told(path), self._folder(folders, create=True) as folder:
            old = _mode(name, folder)
            if old is not None:
                _plain(path, old)
            temporary = f".{secrets.token_hex(8)}.tmp"
            fd = os.open(temporary, _NEW, 0o644, dir_fd=folder)
            try:
                with os.fdopen(fd, "wb") as file:
                    file.write(content)
                    _own_like(folder, fd)
                    if old is not None:
                        os.fchmod(fd, stat.S_IMODE(old) & 0o777)
                os.rename(temporary, name, src_dir_fd=folder, dst_dir_fd=folder)
            except BaseException:
                with contextlib.suppress(FileNotFoundError):
                    os.unlink(temporary, dir_fd=folder)
                raise
        return old is None

    def walk(self, path: str, *, recursive: bool) -> Iterator[DirectoryEntry]:
        """What lies in a folder, by name, folders before their content; the path of a file gives just that file."""
        names = parts(path)
        with _told(path):
            if names:
                with self._folder(names[:-1]) as folder:
                    mode = os.stat(names[-1], dir_fd=folder, follow_symlinks=False)
                if not stat.S_ISDIR(mode.st_mode):
                    yield DirectoryEntry("/".join(names), _kind(mode.st_mode), mode.st_size)
                    return
            yield from self._entries(names, recursive)

    def _entries(self, names: tuple[str, ...], recursive: bool) -> Iterator[DirectoryEntry]:
        with self._folder(names) as folder, os.scandir(folder) as found:
            entries = {entry.name: info for entry in found if (info := _info(entry))}
        for name in sorted(entries):
            here = (*names, name)
            kind = _kind(entries[name].st_mode)
            yield DirectoryEntry("/".join(here), kind, entries[name].st_size)
            if recursive and kind == "folder" and len(here) < MAX_DEPTH:
                # removed, or swapped for a link, while we walk: then it is not there to list
                with contextlib.suppress(OSError):
                    yield from self._entries(here, recursive)

    @contextlib.contextmanager
    def _folder(self, names: list[str] | tuple[str, ...], create: bool = False) -> Iterator[int]:
        fd = os.open(self._root, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
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
        names = parts(path)
        if not names or path.endswith("/"):
            raise PathError(f"{path!r} is a folder, not a file.")
        return names


def _make_folder(name: str, parent: int) -> None:
    with contextlib.suppress(FileExistsError):
        os.mkdir(name, 0o755, dir_fd=parent)
        fd = os.open(name, _FOLDER, dir_fd=parent)
        try:
            _own_like(parent, fd)
        finally:
            os.close(fd)


def _own_like(folder: int, fd: int) -> None:
    """A worker that is root makes files for the sandbox's user, who owns the folder, to change."""
    if os.geteuid() == 0:
        owner = os.fstat(folder)
        os.fchown(fd, owner.st_uid, owner.st_gid)


def _info(entry: "os.DirEntry[str]") -> os.stat_result | None:
    try:
        return entry.stat(follow_symlinks=False)
    except FileNotFoundError:
        return None  # a command removed it while we looked


def _mode(name: str, folder: int) -> int | None:
    try:
        return os.stat(name, dir_fd=folder, follow_symlinks=False).st_mode
    except FileNotFoundError:
        return None


def _kind(mode: int) -> str:
    kinds = {stat.S_IFREG: "file", stat.S_IFDIR: "folder", stat.S_IFLNK: "link"}
    return kinds.get(stat.S_IFMT(mode), "special")


def _plain(path: str, mode: int) -> None:
    kind = _kind(mode)
    if kind == "link":
        raise PathError(f"{path!r} is a symbolic link, and links are not followed here.")
    if kind != "file":
        raise PathError(f"{path!r} is not a plain file but a {'folder' if kind == 'folder' else 'special file'}.")


@contextlib.contextmanager
def _told(path: str) -> Iterator[None]:
    """The system's refusals in words for the model."""
    try:
        yield
    except FileNotFoundError:
        raise PathError(f"{path!r} does not exist. list_files shows what does.") from None
    except (NotADirectoryError, FileExistsError, IsADirectoryError):
        raise PathError(f"Something on the way to {path!r} is not a folder (links are not followed).") from None
    except OSError as error:
        raise PathError(f"{path!r} cannot be used: {os.strerror(error.errno or 0)}.") from None
