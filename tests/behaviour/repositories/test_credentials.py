"""Credentials: used for the hosts that they are bound to, and nowhere to be seen."""

import asyncio
import base64
from pathlib import Path

from domain.ids import new_id
from store.keys import Right
from tests.behaviour.repositories.conftest import Origin, artifact, define, store_credential, user
from tests.support.git_server import git
from tests.support.secrets import secrets_found
from tests.support.stack import Stack, eventually, steps

LOOK = (
    "env; cat .git/config; cat /proc/*/environ /proc/*/cmdline; git remote -v; curl -si $ERRAND_GATEWAY/$PLACE/api/v1/x"
)


async def test_a_private_repository_is_used_with_a_token_that_nothing_shows(
    stack: Stack, origin: Origin, tmp_path: Path
) -> None:
    credential = await store_credential(stack, origin, access="write")
    assert origin.forge.token is not None
    host = origin.place.removeprefix("http://")
    environment = await define(
        stack,
        origin.url,
        {"credential": credential},
        network="allowlist",
        hosts=["127.0.0.1"],
        variables={"PLACE": f"http/{host}"},
        setup=f"git fetch -q && echo fetched; {LOOK}",
        setup_hosts=["127.0.0.1"],
    )
    task_id = await stack.submit(
        steps(
            [("bash", {"command": LOOK})],
            [("bash", {"command": "echo more >> app.py && git commit -qam More && git push -v origin HEAD 2>&1"})],
        ),
        config={"environment": environment},
    )
    record = await stack.wait(task_id)
    assert record["status"] == "completed"
    [branch] = [one for one in origin.branches() if one.startswith("errand/")]
    assert git(origin.folder, "log", "-1", "--format=%s", branch) == "More"
    seen = str(await stack.asked(task_id))
    assert "fetched" in str(await stack.events(task_id)) and "default_branch" in seen
    token = origin.forge.token
    assert token not in seen and token not in str(await stack.events(task_id))
    assert await secrets_found(stack, [token.encode()]) == []
    homes = [stack.workspace(task_id), stack.settings.workspaces_dir.with_name("mirrors")]
    assert not await asyncio.to_thread(contains, homes, token.encode())


def contains(homes: list[Path], secret: bytes) -> bool:
    files = [path for home in homes for path in home.rglob("*") if path.is_file() and not path.is_symlink()]
    assert len(files) > 10
    return any(secret in path.read_bytes() for path in files)


async def test_a_credential_that_may_read_does_not_write_and_another_host_gets_none(
    stack: Stack, origin: Origin
) -> None:
    credential = await store_credential(stack, origin)
    environment = await define(stack, origin.url, {"credential": credential}, network="open")
    place = origin.place.replace("://", "/")
    record = await stack.run(
        steps(
            [
                (
                    "bash",
                    {"command": "echo more >> app.py; git commit -qam More; git fetch && git push origin HEAD 2>&1"},
                )
            ],
            [("bash", {"command": f"curl -s -XPOST $ERRAND_GATEWAY/{place}/api/v1/repos/shop/pulls -d {{}}"})],
            [("bash", {"command": "curl -s $ERRAND_GATEWAY/https/example.org/; curl -s $ERRAND_GATEWAY/etc"})],
        ),
        config={"environment": environment},
    )
    replies = await stack.asked(record["task_id"])
    pushed, posted, other = (str(one["body"]["messages"][-1]) for one in replies[1:4])
    assert "may only read" in pushed and "may only read" in posted and origin.forge.pulls == []
    assert "no credential for https://example.org" in other and "is asked for /https/HOST/PATH" in other
    assert not [one for one in origin.branches() if one.startswith("errand/")]


async def test_the_log_of_checks_is_an_artifact_without_what_a_host_sends_back(stack: Stack, origin: Origin) -> None:
    credential = await store_credential(stack, origin)
    environment = await define(stack, origin.url, {"credential": credential}, network="allowlist", hosts=["127.0.0.1"])
    echoed = f"seq 3000; curl -s $ERRAND_GATEWAY/{origin.place.replace('://', '/')}/api/v1/x"
    record = await stack.run(
        "look", config={"environment": environment}, acceptance_criteria=[{"kind": "command", "run": echoed}]
    )
    log = (await artifact(stack, record["task_id"], "checks.log")).decode()
    assert "\n1\n2\n" in log and "default_branch" in log and "[exit code 0]" in log
    verdicts = (await stack.result(record["task_id"]))["acceptance"]
    assert "default_branch" in verdicts[0]["why"]
    assert origin.forge.token is not None and origin.forge.token not in log + str(verdicts)


async def test_an_error_of_git_has_no_credential_that_the_host_sends_back(stack: Stack, origin: Origin) -> None:
    credential = await store_credential(stack, origin)
    environment = await define(stack, f"{origin.place}/echo/shop", {"credential": credential})
    record = await stack.run("look", config={"environment": environment})
    said, token = record["error"]["message"], origin.forge.token
    assert record["status"] == "failed" and "refused:" in said and token is not None
    encoded = base64.b64encode(f"x-access-token:{token}".encode()).decode()
    assert token not in said and encoded not in said, said


async def test_a_missing_credential_ends_the_task_before_the_model_is_asked(stack: Stack, origin: Origin) -> None:
    credential = await store_credential(stack, origin)
    without = await define(stack, origin.url)
    gone = await define(stack, origin.url, {"credential": credential})
    with stack.frozen("worker"):
        tasks = [await stack.submit("do", config={"environment": one}) for one in (without, gone)]
        assert (await stack.http.delete(f"/credentials/{credential}")).status_code == 204
    for task_id, why in zip(tasks, ("needs a credential", f"the credential {credential} was deleted"), strict=True):
        record = await stack.wait(task_id)
        assert (record["status"], record["error"]["type"]) == ("failed", "repository")
        assert why in record["error"]["message"] and record["usage"]["llm_calls"] == 0


async def test_setup_has_secrets_and_commands_have_what_is_exposed(stack: Stack, origin: Origin) -> None:
    credential, name = await store_credential(stack, origin), f"c-{new_id()}"
    origin.forge.token, secret = None, f"secret-{new_id()}"
    shown, exposed = f"c-{new_id()}", f"exposed-{new_id()}"
    for one, value in ((name, secret), (shown, exposed)):
        assert (await stack.http.put(f"/credentials/{one}", json={"secret": value})).status_code == 201
    environment = await define(
        stack,
        origin.url,
        {"credential": credential},
        variables={"MODE": "quick"},
        secrets={"NPM_TOKEN": name},
        exposed={"SHOWN": shown},
        setup='echo "$MODE ${#NPM_TOKEN} $NPM_TOKEN ${SHOWN:-no other}"',
    )
    record = await stack.run(
        steps([("bash", {"command": 'echo "mode $MODE, token ${NPM_TOKEN:-none}, ${#SHOWN} $SHOWN"'})]),
        config={"environment": environment},
    )
    [done] = [one for one in await stack.events(record["task_id"]) if one["type"] == "setup_finished"]
    assert f"quick {len(secret)} " in done["log"] and "no other" in done["log"] and secret not in done["log"]
    asked = str(await stack.asked(record["task_id"]))
    assert f"mode quick, token none, {len(exposed)} " in asked and exposed not in asked
    assert await secrets_found(stack, [secret.encode(), exposed.encode()]) == []


# of users and of tasks


READ = [[("bash", {"command": "cat app.py"})]]


async def test_a_users_credential_is_used_for_tasks_of_that_user_alone(stack: Stack, origin: Origin) -> None:
    """The tenant's of the same name has another token, which the server refuses."""
    name = await store_credential(stack, origin)
    reach: dict[str, object] = {"network": "allowlist", "hosts": ["127.0.0.1"]}
    environment = await define(stack, origin.url, {"credential": name, "depth": 0}, **reach)
    config = {"environment": environment}
    async with user(stack) as alice, user(stack) as bob:
        await store_credential(stack, origin, owner=alice.http, name=name)
        assert (await alice.run(steps(*READ), config=config))["status"] == "completed"
        # what her task fetched is on the worker, and git asks no server for a commit that is there
        commit = git(origin.folder, "rev-parse", "HEAD")
        for ref in (None, commit):
            record = await bob.run(steps(*READ), config={**config, "ref": ref})
            assert (record["status"], record["error"]["type"]) == ("failed", "repository"), record
            assert "needs a credential" in record["error"]["message"], record
        fetch = {"input": steps([("bash", {"command": "git fetch -q origin main 2>&1 && echo fetched-it"})])}
        first = await alice.run("look", config=config)
        async with user(stack, Right.SUBMIT, Right.SUPERVISE, Right.READ) as carol:
            for one in (alice, carol):  # who may write to her conversation does not use what is hers
                answer = await one.http.post(f"/conversations/{first['task_id']}/messages", json=fetch)
                turn = await one.wait(answer.json()["session_id"])
                assert ("fetched-it" in (await one.result(turn["task_id"]))["output"]) is (one is alice)
        removed = await bob.http.delete(f"/credentials/{name}", params={"scope": "user"})
        assert removed.status_code == 404
        assert (await alice.run(steps(*READ), config=config))["status"] == "completed"


async def test_no_other_user_takes_over_what_a_setup_made(stack: Stack, origin: Origin) -> None:
    name = f"c-{new_id()}"
    environment = await define(stack, origin.url, secrets={"TOKEN": name}, setup="echo $TOKEN > ignored.txt")
    async with user(stack) as alice, user(stack) as bob:
        seen: list[tuple[bool, str]] = []
        for one in (alice, alice, bob):
            secret = f"secret-{new_id()}" if one is bob or not seen else ""
            if secret:
                put = await one.http.put(f"/credentials/{name}", params={"scope": "user"}, json={"secret": secret})
                assert put.status_code == 201
            record = await one.run(
                steps([("bash", {"command": "cut -c 8- ignored.txt"})]), config={"environment": environment}
            )
            [done] = [event for event in await one.events(record["task_id"]) if event["type"] == "setup_finished"] or [
                {"reused": True}
            ]
            seen.append((done["reused"], (await one.result(record["task_id"]))["output"]))
    (_, first), (_, second), (_, third) = seen
    assert first == second != third, seen


async def test_a_credential_that_comes_with_a_task_is_gone_with_it(stack: Stack, origin: Origin) -> None:
    name, origin.forge.token = f"c-{new_id()}", f"token-{new_id()}"
    environment = await define(
        stack, origin.url, {"credential": name}, network="allowlist", hosts=["127.0.0.1"], variables={"A": "1"}
    )
    given = {name: {"secret": origin.forge.token, "hosts": [origin.place], "access": "write"}}
    config = {"environment": environment, "credentials": given}
    missing = await stack.http.post(
        "/tasks", json={"agent": "tester", "input": "x", "config": {"environment": environment}}
    )
    assert missing.status_code == 422 and missing.json()["errors"][0]["pointer"] == "/config/environment"
    push = "echo more >> app.py && git commit -qam More && git push origin HEAD 2>&1; touch begun; sleep 4"
    task_id = await stack.submit(steps([("bash", {"command": push})], *READ), config=config)

    await eventually(lambda: asyncio.to_thread((stack.workspace(task_id) / "begun").exists))
    secret, count = origin.forge.token.encode(), "SELECT count(*) FROM credentials WHERE name = $1"
    assert await stack.pool.fetchval(count, name) == 1
    assert await secrets_found(stack, [secret]) == []
    await stack.back("worker", await stack.kill("worker"))
    assert (await stack.wait(task_id))["status"] == "completed"
    assert [one for one in origin.branches() if one.startswith("errand/")]
    assert await stack.pool.fetchval(count, name) == 0
    said = (await stack.http.get(f"/tasks/{task_id}/audit")).json()["items"]
    assert [one["subject"] for one in said if one["action"] == "put_credential"] == [f"task/{task_id}/{name}"]
    shown = [await stack.record(task_id), await stack.events(task_id), await stack.asked(task_id)]
    assert origin.forge.token not in str(shown) and await secrets_found(stack, [secret]) == []
    turn = await stack.http.post(
        f"/conversations/{task_id}/messages", json={"input": "more", "config": {"credentials": given}}
    )
    assert turn.status_code == 422 and turn.json()["errors"][0]["pointer"] == "/config/credentials", turn.text
