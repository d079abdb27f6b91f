"""Pictures and PDFs in a request: their bytes are taken out when it is read, and kept in the store of files."""

import base64
from collections.abc import Iterator
from typing import Any, Literal, NamedTuple

from pydantic import BaseModel, Field, ValidationError

from api.faces.responses.errors import BadParameter
from api.http.auth import Call
from api.http.body import parse_json, too_large
from api.submission.task_files import check_file_name, quota_exceeded
from domain.json_object import JsonObject
from domain.pictures import MOST_SHOWN, Facts, NotShown, inspect
from store import files
from store.files import digest_of

_FIELDS = {"input_image": "image_url", "input_file": "file_data"}


class FilePart(BaseModel, extra="ignore", strict=True):
    """A picture or a PDF. What is kept of a request has its id only."""

    type: Literal["input_image", "input_file"]
    file_id: str | None = None
    filename: str | None = Field(default=None, max_length=1_000)
    image_url: str | None = None
    file_data: str | None = None
    file_url: str | None = None

    @property
    def text(self) -> str:
        return f"[file {self.filename or self.file_id}]"


class InputFile(NamedTuple):
    content: bytes
    facts: Facts


InputFiles = dict[str, InputFile]  # by their digests


def parse_with_files(raw: bytes, most: int) -> tuple[Any, InputFiles]:
    """The parsed body with digests in the place of files, so that nothing else handles texts of that length.
    Without its files it may be as long, and have as many members, as any other body. For a thread: it takes a while."""
    if sum(map(raw.count, (b",", b"[", b"{"))) > most:
        raise too_large(most)
    value, found, left = parse_json(raw), InputFiles(), len(raw)
    for count, (where, part) in enumerate(_find_parts(value), start=1):
        if count > MOST_SHOWN:
            raise BadParameter("input", f"A request may have {MOST_SHOWN} files.", "array_above_max_length")
        name = _FIELDS[part["type"]]
        text = part.get(name)
        # an address is refused later
        address = isinstance(text, str) and not text.startswith("data:") and (name == "image_url" or "://" in text)
        if isinstance(text, str) and text and not address:
            file = _decode(text, f"{where}.{name}")
            part[name] = f"sha256:{digest_of(file.content)}"
            found[part[name]] = file
            left -= len(text)
    if left > most:
        raise too_large(most)
    return value, found


def _find_parts(value: Any) -> Iterator[tuple[str, JsonObject]]:
    items = value.get("input") if isinstance(value, dict) else None
    for place, item in enumerate(items if isinstance(items, list) else []):
        parts = item.get("content") if isinstance(item, dict) else None
        for number, part in enumerate(parts if isinstance(parts, list) else []):
            if isinstance(part, dict) and part.get("type") in ("input_image", "input_file"):
                yield f"input[{place}].content[{number}]", part


def _decode(text: str, where: str) -> InputFile:
    head, marked, data = text.partition(";base64,")
    try:
        content = base64.b64decode(data if marked else text if not head.startswith("data:") else "", validate=True)
        return InputFile(content, inspect(content))
    except NotShown as error:
        raise BadParameter(where, f"The file cannot be used: {error}.", "invalid_file") from None
    except ValueError:
        raise BadParameter(where, "The data must be base64, as in a data URL.") from None


async def keep_files(call: Call, items: list[JsonObject], found: InputFiles) -> None:
    """Store the files, and put their ids in the place of their digests."""
    for where, part in _find_parts({"input": items}):
        kept = await _keep_file(call, part, found, where)
        part.clear()
        part.update(kept)


async def _keep_file(call: Call, given: JsonObject, found: InputFiles, where: str) -> JsonObject:
    try:
        part = FilePart.model_validate(given)
    except ValidationError:
        raise BadParameter(where, f"{where} is not valid here.") from None
    if part.file_id is not None:
        if part.image_url or part.file_data or part.file_url:
            raise BadParameter(where, "Give either a file id or the data.")
        return {"type": part.type, "file_id": part.file_id, "filename": part.filename}
    name = _FIELDS[part.type]
    text = getattr(part, name)
    if part.file_url or (text and text not in found):
        message = "Addresses are not opened here: send a data URL, or the id of an uploaded file."
        raise BadParameter(f"{where}.{name}", message, "unsupported_value")
    content, facts = found[text] if text else _decode("", f"{where}.{name}")
    ending = facts.media_type.partition("/")[2]
    named = check_file_name(part.filename or f"input-{digest_of(content)[:8]}.{ending}", "/context")
    quota = call.settings.tenant_upload_bytes
    file = await files.put(call.pool, call.tenant, named, facts.media_type, content, call.caller.created_by, quota)
    if file is None:
        used = await files.count_uploaded_bytes(call.pool, call.tenant)
        raise quota_exceeded("uploaded files", "ERRAND_TENANT_UPLOAD_BYTES", quota, used, len(content))
    return {"type": part.type, "file_id": file.id, "filename": file.name}
