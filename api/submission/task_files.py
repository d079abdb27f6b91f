"""Files that a task brings: uploaded ones, and archives, which are unpacked; names and sizes are checked."""

import asyncio
import io
import re
import tarfile
from typing import NamedTuple

from api.http.auth import Call
from api.http.lookup import check_file
from api.http.problems import finding, refuse
from domain.errors import Conflict, Invalid
from domain.pictures import MOST_BYTES, MOST_SHOWN, FileBlock, NotShown, inspect, media_type_of
from domain.policy.rules import MAX_DEPTH
from domain.task import TaskSpec
from settings import Settings
from store import files, workspaces
from store.database import Pool
from store.workspaces import Manifest, ManifestEntry, count_stored_bytes, without_conflicts

FILE_MODE, PROGRAM_MODE = 0o644, 0o755
BATCH_BYTES = 8_000_000  # contents that are written in one statement
MAX_BYTES = 255  # of one name
MAX_PATH_BYTES = 1_000
# control characters, path separators, lone surrogates, undecodable bytes, marks that change the reading direction
_FORBIDDEN = re.compile("[\x00-\x1f\x7f-\x9f/\\\\\ud800-\udfff\ufffd\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069]")


class UnpackedTree(NamedTuple):
    manifest: Manifest
    contents: dict[str, bytes]  # by digest


async def collect_files(call: Call, spec: TaskSpec, *, checked: bool = False) -> Manifest:
    """Files and archives of the context, as entries of the workspace; `checked`: the caller is known to have access."""
    wanted = [(f"/context/files/{place}", file_id) for place, file_id in enumerate(spec.context.files)]
    archives = [(f"/context/archives/{place}", file_id) for place, file_id in enumerate(spec.context.archives)]
    ids = [file_id for _, file_id in (*wanted, *archives)]
    found = await files.find(call.pool, call.tenant, ids) if ids else {}
    result: Manifest = {}
    for pointer, file_id in (*wanted, *archives):
        if (file := found.get(file_id)) is None:
            raise refuse(pointer, "not_found", "there is no such file")
        if not checked:  # a caller must not read another key's file through a task
            await check_file(call, file)
        if (pointer, file_id) in wanted:
            check_file_name(file.name, pointer)
            entries: Manifest = {file.name: {"sha256": file.sha256, "size": file.size, "mode": FILE_MODE}}
        else:
            _, _, content = await files.content(call.pool, call.tenant, file_id) or ("", "", b"")
            entries = await unpack_into(call.pool, call.tenant, call.settings, content, pointer)
        if twice := sorted(path for path in entries if path in result and entries[path].get("kind") != "folder"):
            raise refuse(pointer, "duplicate_name", f"names must differ: {twice[0]}")
        result |= entries
    if len(without_conflicts(result)) < len(result):
        raise refuse("/context/files", "duplicate_name", "one name is used for a file and for a folder")
    return result


class ShownFiles(NamedTuple):
    """Files of a task that its model is shown with the message, and why it is not shown others, by name."""

    blocks: list[FileBlock]
    left_out: dict[str, str]

    def name(self, files: Manifest) -> list[str]:
        """The files of a workspace, as the message lists them."""
        return [f"{name} (not shown: {why})" if (why := self.left_out.get(name)) else name for name in sorted(files)]


NOTHING_SHOWN = ShownFiles([], {})


async def find_shown(call: Call, file_ids: list[str]) -> ShownFiles:
    """The pictures and PDFs among files that the caller may use. Those that cannot be shown are in the workspace all
    the same."""
    starts = await files.starts(call.pool, call.tenant, file_ids)
    known = await files.find(call.pool, call.tenant, [one for one in file_ids if media_type_of(starts.get(one, b""))])
    shown, left_out, room = list[FileBlock](), dict[str, str](), MOST_BYTES
    for file in [known[one] for one in file_ids if one in known]:
        try:
            room -= file.size
            if room < 0 or len(shown) == MOST_SHOWN:
                raise NotShown("a message shows no more")
            _, _, content = await files.content(call.pool, call.tenant, file.id) or ("", "", b"")
            shown.append((await asyncio.to_thread(inspect, content)).block(file.id, file.name, file.size))
        except NotShown as error:
            room += file.size
            left_out[file.name] = str(error)
    return ShownFiles(shown, left_out)


async def check_workspaces(call: Call, files: Manifest) -> None:
    """Refuse a task whose files no longer fit into the tenant's workspaces."""
    quota = call.settings.tenant_workspace_bytes
    if not quota or not files:
        return
    used = await workspaces.bytes_of_tenant(call.pool, call.tenant)
    size = sum(map(count_stored_bytes, files.values()))
    if used + size > quota:
        raise quota_exceeded("workspaces", "ERRAND_TENANT_WORKSPACE_BYTES", quota, used, size)


def quota_exceeded(what: str, setting: str, quota: int, used: int, size: int) -> Conflict:
    detail = f"This tenant's {what} may hold {quota:,} bytes ({setting}). They hold {used:,}, and this adds {size:,}."
    return Conflict(detail, type="quota-exceeded", limit=setting, limit_bytes=quota, used_bytes=used, added_bytes=size)


def check_file_name(name: str, pointer: str = "/name") -> str:
    """The name, which may include folders, if it is safe in a workspace, in a header and on a screen."""
    problem = path_problem(name)
    if problem:
        raise refuse(pointer, "file_name", problem, type="invalid-filename")
    return name


def path_problem(path: str) -> str | None:
    """The fault of a path in a workspace."""
    names = path.split("/")
    if len(names) > MAX_DEPTH or len(path.encode(errors="replace")) > MAX_PATH_BYTES:
        return f"at most {MAX_DEPTH} folders and {MAX_PATH_BYTES} bytes"
    return next((problem for name in names if (problem := _name_problem(name))), None)


def _name_problem(name: str) -> str | None:
    if not name.strip() or name != name.strip():
        return "must not be empty, and not begin or end with a space"
    if _FORBIDDEN.search(name):
        return "no separators, control characters or marks that change the reading direction"
    # a name that begins with - is an option to most commands that an agent would run on it
    if name in (".", "..") or name.startswith("-"):
        return "must not be . or .. nor begin with -"
    if len(name.encode()) > MAX_BYTES:
        return f"at most {MAX_BYTES} bytes"
    return None


# Archives: a tree of files as one tar file, compressed or not.


async def unpack_into(pool: Pool, tenant: str, settings: Settings, content: bytes, pointer: str) -> Manifest:
    """Store the files of an archive; returns them as entries of a workspace."""
    # decompressing takes seconds, in which other requests must be served
    tree = await asyncio.to_thread(_unpack, content, settings, pointer)
    batch: dict[str, bytes] = {}
    for digest, data in tree.contents.items():
        batch[digest] = data
        if sum(map(len, batch.values())) > BATCH_BYTES:
            await files.put_digested(pool, tenant, batch)
            batch = {}
    await files.put_digested(pool, tenant, batch)
    return tree.manifest


def _unpack(content: bytes, settings: Settings, pointer: str) -> UnpackedTree:
    manifest: Manifest = {}
    contents: dict[str, bytes] = {}
    room = settings.workspace_bytes or float("inf")
    try:
        # Read as a stream, so that a small archive that unpacks to something huge is abandoned as soon as it is too
        # large.
        with tarfile.open(fileobj=io.BytesIO(content), mode="r|*") as archive:
            for member in archive:
                path = member.name.removeprefix("./").rstrip("/")
                if path in ("", ".") and member.isdir():
                    continue
                if (problem := path_problem(path)) is not None:
                    raise _refuse_archive(pointer, "file_name", f"{member.name[:200]!r}: {problem}")
                entry, data = _read(archive, member, settings, pointer)
                room -= entry.get("size", 0)
                if room < 0:
                    raise _refuse_archive(pointer, "too_large", f"a workspace holds {settings.workspace_bytes:,} bytes")
                if data is not None:
                    contents[entry["sha256"]] = data
                manifest[path] = entry
                if len(manifest) > settings.workspace_files:
                    raise _refuse_archive(pointer, "too_many", f"a workspace holds {settings.workspace_files:,} files")
    except (tarfile.TarError, OSError, EOFError, ValueError) as error:
        raise _refuse_archive(pointer, "not_an_archive", f"this is not a tar file that can be read: {error}") from None
    return UnpackedTree(manifest, contents)


def _read(
    archive: tarfile.TarFile, member: tarfile.TarInfo, settings: Settings, pointer: str
) -> tuple[ManifestEntry, bytes | None]:
    if member.isdir():
        return {"kind": "folder", "mode": PROGRAM_MODE}, None
    # a link could lead out of the workspace, and a device has no content
    if not member.isreg():
        raise _refuse_archive(
            pointer, "kind", f"{member.name[:200]!r} is a link or a device; only files and folders are taken"
        )
    if member.size > settings.workspace_file_bytes:
        most = f"a file has at most {settings.workspace_file_bytes:,} bytes"
        raise _refuse_archive(pointer, "too_large", f"{member.name[:200]!r} has {member.size:,}; {most}")
    source = archive.extractfile(member)
    assert source is not None
    data = source.read(member.size)
    mode = PROGRAM_MODE if member.mode & 0o100 else FILE_MODE
    return {"sha256": files.digest_of(data), "size": len(data), "mode": mode}, data


def _refuse_archive(pointer: str, code: str, message: str) -> Invalid:
    return Invalid("The archive cannot be used.", type="invalid-archive", errors=[finding(pointer, code, message)])
