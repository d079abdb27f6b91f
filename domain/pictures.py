"""Pictures and PDFs that a model is shown: which files are taken, what their bytes say of them, and which of those in a
request are shown. Their bytes stay in the store of files; messages hold only this.
"""

import re
import struct
from collections.abc import Iterable
from typing import Literal, NamedTuple

from errand.models import ShownFile

MEDIA_TYPES = ("image/png", "image/jpeg", "image/gif", "image/webp", "application/pdf")
# What every vendor takes; in requests they are a third larger.
LARGEST_IMAGE, LARGEST_DOCUMENT, LONGEST_SIDE = 3_900_000, 15_000_000, 8_000
MOST_SHOWN, MOST_BYTES = 20, 20_000_000  # of one request, and of one message or result
ALLOWED = (
    f"png, jpeg, gif and webp up to {LARGEST_IMAGE / 1e6:g} MB and {LONGEST_SIDE:,} pixels a side, "
    f"and PDF without a password up to {LARGEST_DOCUMENT / 1e6:g} MB"
)


class NotShown(ValueError):
    """A file that models are not shown; the text says why, and what is taken."""

    def __init__(self, why: str) -> None:
        super().__init__(f"{why}; models are shown {ALLOWED}")


class FileBlock(ShownFile):
    """A picture or a PDF in a message. Where a model is not shown it, it is described."""

    width: int = 0
    height: int = 0

    def describe(self) -> str:
        kind, pixels = ("picture", f"{self.width}×{self.height}, ") if self.type == "image" else ("PDF", "")
        return f"[{kind} {self.name}, {pixels}{show_size(self.size)}, file id {self.file_id}: not shown here]"

    @property
    def tokens(self) -> int:
        """About the most that it costs as input. A PDF counts by its pages, whose number is not known."""
        if self.type == "image":
            return min(self.width * self.height // 750, 4_784) + 100
        return min(self.size // 20, 300_000) + 3_000


class Facts(NamedTuple):
    media_type: str
    width: int = 0
    height: int = 0

    def block(self, file_id: str, name: str, size: int) -> FileBlock:
        kind: Literal["image", "document"] = "document" if self.media_type == "application/pdf" else "image"
        return FileBlock(type=kind, file_id=file_id, name=name, size=size, **self._asdict())


def show_size(size: int) -> str:
    return f"{size} bytes" if size < 1_000 else f"{size / 1e3:.0f} kB" if size < 1e6 else f"{size / 1e6:.1f} MB"


def media_type_of(start: bytes) -> str | None:
    """The type that a file's first bytes name, if it is one that models are shown; its name does not count."""
    if start.startswith(b"RIFF") and start[8:12] == b"WEBP":
        return "image/webp"
    return next((kind for magic, kind in _MAGIC.items() if start.startswith(magic)), None)


def inspect(content: bytes) -> Facts:
    """What a whole file is. Raises NotShown: a file that a vendor refuses would fail each call of its session."""
    media_type = media_type_of(content)
    if media_type is None:
        raise NotShown("its content is none of these types")
    largest = LARGEST_DOCUMENT if media_type == "application/pdf" else LARGEST_IMAGE
    if len(content) > largest:
        raise NotShown(f"it has {show_size(len(content))}")
    try:
        width, height = _READERS[media_type](content)
    except (IndexError, struct.error, ValueError):
        raise NotShown(f"it is a {media_type} that is damaged or incomplete") from None
    if media_type == "application/pdf":
        if _LOCKED.search(content):
            raise NotShown("it is a PDF with a password")
        return Facts(media_type)
    if not (0 < width <= LONGEST_SIDE and 0 < height <= LONGEST_SIDE):
        raise NotShown(f"it has {width:,}×{height:,} pixels")
    return Facts(media_type, width, height)


def choose_shown(blocks: Iterable[FileBlock], *, pdfs: bool) -> list[FileBlock]:
    """Those of a request's files that the model is shown: the newest, as many as fit."""
    chosen: dict[str, FileBlock] = {}
    room = MOST_BYTES
    for block in reversed(list(blocks)):
        if (pdfs or block.type == "image") and block.file_id not in chosen:
            room -= block.size
            if room < 0 or len(chosen) == MOST_SHOWN:
                break
            chosen[block.file_id] = block
    return list(chosen.values())


# the readers of the formats: width and height; an error if the file breaks off


def _png(content: bytes) -> tuple[int, int]:
    content.rindex(b"IEND")
    width, height = struct.unpack(">II", content[16:24])
    return width, height


def _gif(content: bytes) -> tuple[int, int]:
    if not content.rstrip(b"\0").endswith(b";"):
        raise ValueError("no end")
    width, height = struct.unpack("<HH", content[6:10])
    return width, height


def _jpeg(content: bytes) -> tuple[int, int]:
    place = 2
    while True:
        marker, (length,) = content[place + 1], struct.unpack(">H", content[place + 2 : place + 4])
        if content[place] != 0xFF or length < 2:
            raise ValueError("no segment")
        if 0xC0 <= marker <= 0xCF and marker not in (0xC4, 0xC8, 0xCC):
            content.index(b"\xff\xd9", place)
            height, width = struct.unpack(">HH", content[place + 5 : place + 9])
            return width, height
        place += 2 + length


def _webp(content: bytes) -> tuple[int, int]:
    if struct.unpack("<I", content[4:8])[0] + 8 > len(content):
        raise ValueError("no end")
    match content[12:16]:
        case b"VP8X":
            return int.from_bytes(content[24:27], "little") + 1, int.from_bytes(content[27:30], "little") + 1
        case b"VP8L":
            (bits,) = struct.unpack("<I", content[21:25])
            return (bits & 0x3FFF) + 1, (bits >> 14 & 0x3FFF) + 1
    width, height = struct.unpack("<HH", content[26:30])
    return width & 0x3FFF, height & 0x3FFF


def _pdf(content: bytes) -> tuple[int, int]:
    content.rindex(b"%%EOF", max(0, len(content) - 2_048))
    return 0, 0


_MAGIC = {
    b"\x89PNG\r\n\x1a\n": "image/png",
    b"\xff\xd8\xff": "image/jpeg",
    b"GIF87a": "image/gif",
    b"GIF89a": "image/gif",
    b"%PDF-": "application/pdf",
}
_READERS = dict(zip(MEDIA_TYPES, (_png, _jpeg, _gif, _webp, _pdf), strict=True))
_LOCKED = re.compile(rb"/Encrypt\s*(<<|\d+\s+\d+\s+R)")
