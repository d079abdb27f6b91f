"""Temporal in the embedded stack: protected against web pages and other accounts."""

import asyncio
import stat
import subprocess
import sys
from urllib.parse import urlsplit

import httpx2
import pytest

from tests.behaviour.api.test_local_access import NOBODY, PYTHON, as_another_account
from tests.behaviour.deploy.processes import listening
from tests.support.stack import Stack

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="asks Linux about its processes")

NAMESPACE = "/api/v1/namespaces/default"


async def answer(address: str, path: str, **headers: str) -> int:
    """Return the status of a request, or 0 if the server does not speak HTTP."""
    async with httpx2.AsyncClient(timeout=3) as http:
        try:
            return (await http.get(f"http://{address}{path}", headers=headers)).status_code
        except httpx2.TransportError:
            return 0


async def test_web_pages_reach_neither_the_web_ui_nor_the_http_api(stack: Stack) -> None:
    ui = urlsplit(stack.part("temporal-ui").address).netloc
    async with httpx2.AsyncClient(base_url=f"http://{ui}") as http:
        await http.get(stack.temporal_ui_link)
        assert (await http.get(NAMESPACE)).status_code == 200
        assert (await http.get(NAMESPACE, headers={"Host": "rebound.example"})).status_code == 403
        assert (await http.get(NAMESPACE, headers={"Origin": "https://evil.example"})).status_code == 403
        path = "/api/v1/namespaces/default/batch-operations/x"
        cross_site = {"Content-Type": "text/plain", "Origin": "https://evil.example"}
        assert (await http.post(path, content="{}", headers=cross_site)).status_code == 403
    # a web page can try every port of 127.0.0.1
    for _, port in listening(stack.pid("temporal")):
        assert await answer(f"127.0.0.1:{port}", NAMESPACE) in (0, 403, 404)


async def test_only_who_opens_the_printed_link_reaches_the_web_ui(stack: Stack) -> None:
    ui = stack.part("temporal-ui").address
    terminate = f"{NAMESPACE}/workflows/session%2Fx/terminate"
    async with httpx2.AsyncClient(base_url=ui) as http:
        for attempt in ("", "?access=", "?access=wrong"):
            http.cookies.set("errand_temporal_ui", "wrong")
            refused = [await http.get(f"{NAMESPACE}/workflows{attempt}"), await http.post(terminate + attempt, json={})]
            assert [(one.status_code, "errand status" in one.text) for one in refused] == [(403, True)] * 2
    async with httpx2.AsyncClient(base_url=ui) as http:
        entry = await http.get(f"/namespaces/default/workflows?a=1&{urlsplit(stack.temporal_ui_link).query}")
        assert (entry.status_code, entry.headers["location"]) == (303, f"{ui}/namespaces/default/workflows?a=1")
        cookie = entry.headers["set-cookie"].lower()
        assert "httponly" in cookie and "samesite=strict" in cookie
        assert (await http.get(f"{NAMESPACE}/workflows")).status_code == 200


TRY = """
import sys, urllib.error, urllib.request
for path in sys.argv[2:]:
    try:
        print(open(path).read())
    except PermissionError:
        print("denied")
try:
    print(urllib.request.urlopen(sys.argv[1]).status)
except urllib.error.HTTPError as error:
    print(error.code)
"""


@as_another_account
async def test_another_account_learns_neither_the_link_nor_the_hidden_addresses(stack: Stack) -> None:
    files = [stack.root / name for name in ("stack.json", "temporal-ui.access")]
    assert [stat.S_IMODE(file.stat().st_mode) for file in files] == [0o600] * 2
    argv = [PYTHON, "-I", "-c", TRY, f"{stack.temporal_ui_url}{NAMESPACE}/workflows", *map(str, files)]
    process = await asyncio.create_subprocess_exec(
        *argv, stdout=subprocess.PIPE, cwd="/", user=NOBODY, group=NOBODY, extra_groups=[]
    )
    assert (await process.communicate())[0].decode().split() == ["denied", "denied", "403"]
