"""Credentials: stored, listed without their secrets, removed; environments name only those that fit."""

from domain.ids import new_id
from tests.support.stack import Stack


async def test_a_credential_is_stored_replaced_listed_and_removed(stack: Stack) -> None:
    name, secret = f"c-{new_id()}", f"secret-{new_id()}"
    body = {"secret": secret, "hosts": ["git.example.org", "api.example.org:8443"]}
    first = await stack.http.put(f"/credentials/{name}", json=body)
    assert first.status_code == 201 and first.json() == {
        "name": name,
        "hosts": body["hosts"],
        "username": "x-access-token",
        "access": "read",
    }
    second = await stack.http.put(f"/credentials/{name}", json={**body, "access": "write"})
    assert second.status_code == 200 and second.json()["access"] == "write"
    listed = await stack.http.get("/credentials")
    assert second.json() in listed.json()["items"] and secret not in listed.text + first.text + second.text
    assert secret not in (await stack.http.get("/audit")).text
    row = await stack.pool.fetchval("SELECT secret FROM credentials WHERE name = $1", name)
    assert row.startswith("sealed:")
    assert (await stack.http.delete(f"/credentials/{name}")).status_code == 204
    assert (await stack.http.delete(f"/credentials/{name}")).status_code == 404


async def test_a_credential_that_cannot_be_is_refused(stack: Stack) -> None:
    for body, pointer in (
        ({"secret": "short"}, "/secret"),
        ({"secret": "with blank 1234"}, "/secret"),
        ({"secret": "0123456789", "hosts": ["https://git.example.org/"]}, "/hosts/0"),
        ({"secret": "0123456789", "hosts": ["http://git.example.org"]}, "/hosts/0"),  # no TLS
        ({"secret": "0123456789", "access": "admin"}, "/access"),
        ({"secret": "0123456789", "username": "a:b"}, "/username"),
        ({}, "/secret"),
    ):
        answer = await stack.http.put("/credentials/c", json=body)
        assert answer.status_code == 422, (body, answer.text)
        assert answer.json()["errors"][0]["pointer"] == pointer
        assert "0123456789" not in answer.text


async def test_an_environment_names_credentials_that_fit(stack: Stack) -> None:
    name = f"c-{new_id()}"
    put = await stack.http.put(f"/credentials/{name}", json={"secret": "0123456789", "hosts": ["a.example.org"]})
    assert put.status_code == 201
    git = {"url": "https://a.example.org/x.git"}
    for body, pointer in (
        ({"git": {**git, "credential": "no-such"}}, "/git/credential"),
        ({"git": {"url": "https://b.example.org/x.git", "credential": name}}, "/git/credential"),
        ({"git": git, "credentials": [name, "no-such"]}, "/credentials/1"),
        ({"git": git, "secrets": {"TOKEN": "no-such"}}, "/secrets/TOKEN"),
        ({"git": git, "network": "allowlist"}, ""),
        ({"git": git, "hosts": ["a.example.org"]}, ""),
        ({"git": git, "variables": {"A B": "x"}}, "/variables"),
        ({"git": {**git, "sparse": ["-x"]}}, "/git/sparse/0"),
        ({"git": {**git, "forge": "cvs"}}, "/git/forge"),
    ):
        answer = await stack.http.put(f"/environments/e-{new_id()}", json=body)
        assert answer.status_code == 422, (body, answer.text)
        assert answer.json()["errors"][0]["pointer"].startswith(pointer), answer.text
    good = {"git": {**git, "credential": name}, "secrets": {"TOKEN": name}, "network": "open"}
    assert (await stack.http.put(f"/environments/e-{new_id()}", json=good)).status_code == 201
