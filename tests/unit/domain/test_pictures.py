"""Which files models are shown: by their bytes, within bounds, the newest of a request."""

import pytest

from domain.pictures import (
    Facts,
    FileBlock,
    NotShown,
    choose_shown,
    inspect,
)
from tests.support.pictures import gif, jpeg, pdf, png, webp


@pytest.mark.parametrize(
    ("content", "found"),
    [
        (png(640, 480), Facts("image/png", 640, 480)),
        (jpeg(640, 480), Facts("image/jpeg", 640, 480)),
        (gif(640, 480), Facts("image/gif", 640, 480)),
        (webp(640, 480), Facts("image/webp", 640, 480)),
        (pdf(), Facts("application/pdf")),
    ],
    ids=lambda value: value.media_type if isinstance(value, Facts) else "",
)
def test_whole_file_is_known_by_its_bytes(content: bytes, found: Facts) -> None:
    assert inspect(content) == found


BROKEN = {
    "none of these types": [
        b"",
        b"<svg/>",
        b"GIF88a;",
    ],
    "damaged or incomplete": [
        png()[:40],
        jpeg()[:-2],
        b"\xff\xd8\xff\xe0\0\0" * 9,
        gif()[:-1],
        webp()[:-3],
        pdf()[:-8],
    ],
    "10,000×10,000 pixels": [png()[:16] + bytes([0, 0, 39, 16] * 2) + png()[24:]],
    "0×3 pixels": [gif(0)],
    "password": [pdf(locked=True)],
}


def check_not_shown(content: bytes, why: str) -> None:
    with pytest.raises(NotShown, match="png, jpeg, gif and webp up to 3.9 MB") as raised:
        inspect(content)
    assert why in str(raised.value)


@pytest.mark.parametrize(("why", "content"), [(why, one) for why, many in BROKEN.items() for one in many])
def test_file_that_a_vendor_would_refuse_is_not_shown_and_the_refusal_says_what_is(why: str, content: bytes) -> None:
    check_not_shown(content, why)


def test_oldest_files_of_a_request_are_left_out_first() -> None:
    def block(number: int, size: int = 10, kind: str = "image") -> FileBlock:
        return FileBlock.model_validate(
            {"type": kind, "file_id": f"f{number}", "name": "n", "media_type": "m", "size": size}
        )

    large = [block(1, 15_000_000, "document"), block(2, 6_000_000, "document"), block(3), block(3)]
    assert [one.file_id for one in choose_shown(large, pdfs=True)] == ["f3", "f2"]
    assert [one.file_id for one in choose_shown(large, pdfs=False)] == ["f3"]
