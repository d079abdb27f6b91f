"""Credentials: stored, listed without their secrets, removed; environments name only those that fit."""

from domain.ids import new_id
from store import keys
from store.keys import Right
from tests.behaviour.repositories.conftest import define, user
from tests.support.stack import Stack


async def test_a_credential_is_stored_replaced_listed_and_removed(stack: Stack) -> None:
    name, secret = f"c-{new_id()}", f"secret-{new_id()}"
    body = {"secret": secret, "hosts": ["git.example.org", "api.example.org:8443"]}
    first = await stack.http.put(f"/credentials/{name}", json=body)
    assert first.status_code == 201 and first.json() == {
        "name": name,
        "scope": "tenant",
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
        ({"secret": "0123456789", "hosts": ["http://git.example.org"]}, "/hosts/0"),  # no TLS
        ({"secret": "0123456789", "access": "admin"}, "/access"),
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
        ({"git": git, "network": "allowlist"}, ""),
        ({"git": git, "hosts": ["a.example.org"]}, ""),
        ({"git": {**git, "sparse": ["-x"]}}, "/git/sparse/0"),
    ):
        answer = await stack.http.put(f"/environments/e-{new_id()}", json=body)
        assert answer.status_code == 422, (body, answer.text)
        assert answer.json()["errors"][0]["pointer"].startswith(pointer), answer.text
    good = {"git": {**git, "credential": name}, "secrets": {"TOKEN": name}, "network": "open"}
    assert (await stack.http.put(f"/environments/e-{new_id()}", json=good)).status_code == 201


async def test_a_user_has_credentials_that_nobody_else_sees_or_changes(stack: Stack) -> None:
    name, mine = f"c-{new_id()}", {"scope": "user"}
    body = {"secret": "0123456789", "hosts": ["a.example.org"]}
    async with user(stack) as alice, user(stack) as bob, user(stack, Right.ADMIN) as admin:
        assert (await alice.http.put(f"/credentials/{name}", json=body)).status_code == 403
        put = await alice.http.put(f"/credentials/{name}", params=mine, json=body)
        assert put.status_code == 201 and put.json()["scope"] == "user"
        for other in (bob, admin, stack):
            assert name not in (await other.http.get("/credentials")).text
        assert (await bob.http.delete(f"/credentials/{name}", params=mine)).status_code == 404
        assert (await admin.http.delete(f"/credentials/{name}")).status_code == 404
        others = {**body, "hosts": ["b.example.org"]}
        assert (await bob.http.put(f"/credentials/{name}", params=mine, json=others)).status_code == 201
        assert (await admin.http.put(f"/credentials/{name}", json=others)).status_code == 201
        found = [one for one in (await alice.http.get("/credentials")).json()["items"] if one["name"] == name]
        assert [(one["scope"], one["hosts"]) for one in found] == [("user", body["hosts"]), ("tenant", others["hosts"])]
        said = [one for one in (await admin.http.get("/audit")).json()["items"] if one["action"] == "put_credential"]
        assert [one["subject"].rpartition("/")[2] for one in said[:3]] == [name] * 3
        assert said[2]["subject"] == f"user/{said[2]['actor']}/{name}" and said[0]["subject"] == name
        # the key ends, and what it stored with it
        assert await keys.revoke(stack.pool, "default", said[2]["actor"])
        rows = await stack.pool.fetch("SELECT owner FROM credentials WHERE name = $1 ORDER BY owner", name)
        assert [row["owner"] for row in rows] == ["", f"user/{said[1]['actor']}"]
    refused = await stack.http.put(f"/credentials/{name}", params=mine, json=body)
    assert refused.status_code == 409 and refused.json()["type"].endswith("no-key"), refused.text
    assert (await stack.http.put(f"/credentials/{name}", params={"scope": "task"}, json=body)).status_code == 422


async def test_a_task_whose_credentials_cannot_be_used_is_refused_when_it_is_submitted(stack: Stack) -> None:
    name, git, mine = f"c-{new_id()}", {"url": "https://a.example.org/x.git"}, {"scope": "user"}
    body, here = {"secret": "0123456789", "hosts": ["a.example.org"]}, "/config/environment"
    environment = await define(stack, git["url"], {"credential": name}, secrets={"TOKEN": f"{name}-b"})
    async with user(stack) as alice, user(stack) as bob:

        async def submit(who: Stack, **config: object) -> list[tuple[str, str]]:
            config = {"environment": environment, **config}
            answer = await who.http.post("/tasks", json={"agent": "tester", "input": "x", "config": config})
            assert "0123456789" not in answer.text
            return [(one["pointer"], one["message"]) for one in answer.json().get("errors", [])]

        none = "there is no such credential"
        assert await submit(alice) == [
            (here, f"its credential {name}: {none}"),
            (here, f"its credential {name}-b: {none}"),
        ]
        for one in (name, f"{name}-b"):
            assert (await alice.http.put(f"/credentials/{one}", params=mine, json=body)).status_code == 201
        [(pointer, why)] = await submit(alice)  # she has bound it to a host, so no environment may show it to commands
        assert pointer == here and "only one of the tenant" in why
        await alice.http.put(f"/credentials/{name}-b", params=mine, json={"secret": "0123456789"})
        assert await submit(alice) == [] and len(await submit(bob)) == 2
        given = {name: {**body, "hosts": ["b.example.org"]}, f"{name}-b": {"secret": "0123456789"}}
        assert await submit(bob, credentials=given) == [
            (here, f"its credential {name}: it is not bound to the host of the repository")
        ]
        for wrong, where in (
            ({name: {**body, "hosts": ["http://a.example.org"]}}, f"/{name}/hosts/0"),
            ({"other": body}, "/other"),
            ({name: {"secret": "short"}}, f"/{name}/secret"),
        ):
            pointers = [pointer for pointer, _ in await submit(alice, credentials=wrong)]
            assert pointers and pointers[0].startswith(f"/config/credentials{where}"), (wrong, pointers)
        [(pointer, _)] = await submit(alice, environment=None, credentials={name: body})
        assert pointer == f"/config/credentials/{name}"
        for ref in ("a..b", "-x"):
            assert [pointer for pointer, _ in await submit(alice, ref=ref)] == ["/config/ref"], ref
