import hashlib
from dataclasses import replace

import httpx2
import pytest

from settings import Settings
from store.database import Pool
from tests.behaviour.api.conftest import problem, serving

DIGEST = hashlib.sha256(b"hello").hexdigest()


async def test_upload_and_download(api: httpx2.AsyncClient) -> None:
    params = {"name": "Bericht ä.html", "sha256": DIGEST}
    answer = await api.post("/files", params=params, content=b"hello", headers={"Content-Type": "text/html"})
    assert answer.status_code == 201
    file = answer.json()
    assert file["sha256"] == DIGEST and file["size"] == 5 and file["media_type"] == "text/html"
    assert (await api.get(f"/files/{file['file_id']}/meta")).json() == file
    download = await api.get(file["url"])
    assert download.content == b"hello" and download.headers["content-type"] == "text/html"
    assert download.headers["content-disposition"] == "attachment; filename*=UTF-8''Bericht%20%C3%A4.html"
    assert download.headers["x-content-type-options"] == "nosniff"
    assert "sandbox" in download.headers["content-security-policy"]


async def test_same_bytes_twice_are_two_files_and_one_blob(api: httpx2.AsyncClient, pool: Pool) -> None:
    one, two = [(await api.post("/files?name=same", content=b"the same")).json() for _ in range(2)]
    assert one["file_id"] != two["file_id"]
    assert await pool.fetchval("SELECT count(*) FROM blobs WHERE sha256 = $1", one["sha256"]) == 1


@pytest.mark.parametrize(
    "name",
    ["", " ", ".", "..", "a/b", "a\\b", "../x", "a\x00b", "a\nb", "-rf", "x" * 256, "ä" * 128, "a\u202egpj.exe", " a",
     "a\u2066b", "a\x7f", "\ufffd"],
)  # fmt: skip
async def test_unsafe_file_names_are_refused(api: httpx2.AsyncClient, name: str) -> None:
    problem(await api.post("/files", params={"name": name}, content=b"x"), 422, "invalid-filename")


async def test_uploads_with_a_wrong_digest_or_type_are_refused(api: httpx2.AsyncClient) -> None:
    wrong = await api.post(f"/files?name=a&sha256={'0' * 64}", content=b"hello")
    problem(wrong, 422, "digest-mismatch")
    header = {"Content-Type": "text/html\t<script>"}
    problem(await api.post("/files?name=a", content=b"x", headers=header), 415, "unsupported-media-type")
    zipped = {"Content-Encoding": "gzip"}
    problem(await api.post("/files?name=a", content=b"x", headers=zipped), 415, "unsupported-encoding")


async def test_uploads_beyond_the_limit_are_refused(settings: Settings, pool: Pool) -> None:
    async with serving(replace(settings, max_file_bytes=1_000)) as url, httpx2.AsyncClient(base_url=url) as client:
        assert (await client.post("/files?name=a", content=b"x" * 1_000)).status_code == 201
        problem(await client.post("/files?name=a", content=b"x" * 1_001), 413, "body-too-large")
