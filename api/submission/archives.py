"""Archives: a tree of files for a workspace, as one tar file, compressed or not."""

import asyncio
import io
import tarfile
from typing import NamedTuple

from api.http.problems import finding
from api.schemas.files import path_problem
from domain.errors import Invalid
from settings import Settings
from store import files
from store.database import Pool
from store.workspaces import Manifest, ManifestEntry

FILE_MODE, PROGRAM_MODE = 0o644, 0o755
BATCH_BYTES = 8_000_000  # contents that are written in one statement


class UnpackedTree(NamedTuple):
    manifest: Manifest
    contents: dict[str, bytes]  # by digest


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
                    raise _refused(pointer, "file_name", f"{member.name[:200]!r}: {problem}")
                entry, data = _read(archive, member, settings, pointer)
                room -= entry.get("size", 0)
                if room < 0:
                    raise _refused(pointer, "too_large", f"a workspace holds {settings.workspace_bytes:,} bytes")
                if data is not None:
                    contents[entry["sha256"]] = data
                manifest[path] = entry
                if len(manifest) > settings.workspace_files:
                    raise _refused(pointer, "too_many", f"a workspace holds {settings.workspace_files:,} files")
    except (tarfile.TarError, OSError, EOFError, ValueError) as error:
        raise _refused(pointer, "not_an_archive", f"this is not a tar file that can be read: {error}") from None
    return UnpackedTree(manifest, contents)


def _read(
    archive: tarfile.TarFile, member: tarfile.TarInfo, settings: Settings, pointer: str
) -> tuple[ManifestEntry, bytes | None]:
    if member.isdir():
        return {"kind": "folder", "mode": PROGRAM_MODE}, None
    # a link could lead out of the workspace, and a device has no content
    if not member.isreg():
        raise _refused(
            pointer, "kind", f"{member.name[:200]!r} is a link or a device; only files and folders are taken"
        )
    if member.size > settings.workspace_file_bytes:
        most = f"a file has at most {settings.workspace_file_bytes:,} bytes"
        raise _refused(pointer, "too_large", f"{member.name[:200]!r} has {member.size:,}; {most}")
    source = archive.extractfile(member)
    assert source is not None
    data = source.read(member.size)
    mode = PROGRAM_MODE if member.mode & 0o100 else FILE_MODE
    return {"sha256": files.digest_of(data), "size": len(data), "mode": mode}, data


def _refused(pointer: str, code: str, message: str) -> Invalid:
    return Invalid("The archive cannot be used.", type="invalid-archive", errors=[finding(pointer, code, message)])
