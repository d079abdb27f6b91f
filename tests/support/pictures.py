"""Small pictures and PDFs, whole and broken."""

import struct
import zlib


def png(width: int = 4, height: int = 3, *, fill: int = 0) -> bytes:
    """A real picture; `fill` makes another one, and its pixels are not compressed away."""

    def chunk(kind: bytes, data: bytes) -> bytes:
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))

    rows = b"".join(b"\0" + bytes([fill % 256]) * width for _ in range(height))
    header = struct.pack(">IIBBBBB", width, height, 8, 0, 0, 0, 0)
    magic = b"\x89PNG\r\n\x1a\n"
    return magic + chunk(b"IHDR", header) + chunk(b"IDAT", zlib.compress(rows, 0)) + chunk(b"IEND", b"")


def jpeg(width: int = 4, height: int = 3) -> bytes:
    start = b"\xff\xd8\xff\xe0" + struct.pack(">H", 16) + b"JFIF\0" + bytes(9)
    frame = b"\xff\xc0" + struct.pack(">HBHHB", 11, 8, height, width, 1) + bytes(3)
    return start + frame + b"\xff\xda" + b"data" + b"\xff\xd9"


def gif(width: int = 4, height: int = 3) -> bytes:
    return b"GIF89a" + struct.pack("<HH", width, height) + bytes(3) + b"data;"


def webp(width: int = 4, height: int = 3) -> bytes:
    body = b"WEBPVP8X" + struct.pack("<I", 10) + bytes(4)
    body += (width - 1).to_bytes(3, "little") + (height - 1).to_bytes(3, "little")
    return b"RIFF" + struct.pack("<I", len(body)) + body


def pdf(size: int = 0, *, locked: bool = False) -> bytes:
    start = b"%PDF-1.4\n1 0 obj<</Type/Catalog/Pages 2 0 R>>endobj\n2 0 obj<</Type/Pages/Kids[]/Count 0>>endobj\n"
    tail = b"trailer<</Root 1 0 R" + (b" /Encrypt 9 0 R" if locked else b"") + b">>\n%%EOF\n"
    return start + b" " * max(0, size - len(start) - len(tail)) + tail
