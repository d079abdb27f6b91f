"""Environments: defined, listed, replaced and removed; what they may not contain."""

from domain.ids import new_id
from tests.support.stack import Stack


async def test_an_environment_is_defined_replaced_and_removed(stack: Stack) -> None:
    name = f"e-{new_id()}"
    body = {"git": {"url": "https://git.example.org/a.git", "depth": 1}, "setup": "make"}
    first = await stack.http.put(f"/environments/{name}", json=body)
    assert first.status_code == 201 and first.json()["git"] | body["git"] == first.json()["git"]
    second = await stack.http.put(f"/environments/{name}", json={"git": {"url": "https://git.example.org/b.git"}})
    assert second.status_code == 200
    shown = (await stack.http.get(f"/environments/{name}")).json()
    assert shown == second.json() and shown["setup"] is None and shown["git"]["depth"] == 50
    assert name in [one["name"] for one in (await stack.http.get("/environments")).json()["items"]]
    assert (await stack.http.delete(f"/environments/{name}")).status_code == 204
    for answer in (await stack.http.get(f"/environments/{name}"), await stack.http.delete(f"/environments/{name}")):
        assert answer.status_code == 404
    task = {"agent": "tester", "input": "x", "config": {"environment": name}}
    refused = await stack.http.post("/tasks", json=task)
    assert refused.status_code == 422 and refused.json()["errors"][0]["pointer"] == "/config/environment"


async def test_an_environment_that_no_worker_could_use_is_refused(stack: Stack) -> None:
    good = {"url": "https://git.example.org/a.git"}
    for name, body, pointer in (
        ("a", {"git": None}, ""),
        ("a", {"git": {"url": "file:///etc"}}, "/git/url"),
        ("a", {"git": {"url": "https://user:secret@git.example.org/a.git"}}, "/git/url"),
        ("a", {"git": {**good, "ref": "--upload-pack=id"}}, "/git/ref"),
        ("a", {"git": good, "setup": None, "secrets": []}, "/secrets"),
        ("A", {"git": good}, "/environment"),
    ):
        answer = await stack.http.put(f"/environments/{name}", json=body)
        assert answer.status_code == 422, (name, body, answer.text)
        assert answer.json()["errors"][0]["pointer"] == pointer, answer.text
