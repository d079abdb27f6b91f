"""No notification reaches a private address: by address, by name, by a name that changes, or by a redirect."""

from typing import Any

import pytest

from activities.egress import Fetcher
from activities.notifications.channels import Envelope, build_channels
from domain.ids import new_id
from domain.notifications import ChannelName, Notice, SendError, new_secret
from store import keys
from store.keys import Right
from tests.behaviour.notifications.subscribers import Subscribers
from tests.support.stack import Stack, eventually
from tests.unit.activities.test_egress import Recording, names

NOTICE = Notice(type="test", timestamp="now", data={"name": "x"}).model_dump_json().encode()
ALLOWED = "127.0.0.1"  # the address that the stack under test allows


async def subscribe(stack: Stack, **body: Any) -> Any:
    return await stack.http.post("/subscriptions", json={"name": "x", "channel": "webhook", **body})


@pytest.mark.parametrize(
    "target",
    [
        *("https://10.0.0.1/", "https://[::ffff:127.0.0.1]/", "https://vault.internal/", "https://\uff11\uff10.0.0.1/"),
        *("http://hooks.example.org/", "https://user:canary@hooks.example.org/", "https://hooks.\texample.org/"),
        f"https://hooks.example.org/{'x' * 2_040}",
    ],
)
async def test_forbidden_target_is_refused_when_it_is_named(stack: Stack, target: str) -> None:
    before = (await stack.http.get("/subscriptions")).json()
    answer = await subscribe(stack, target=target)
    assert answer.status_code == 422, answer.text
    [found] = answer.json()["errors"]
    assert found["pointer"] == "/target" and (found["code"] == "string_too_long" or found["allowed"])
    assert "canary" not in answer.text
    assert (await stack.http.get("/subscriptions")).json() == before


@pytest.mark.parametrize(
    ("body", "pointer", "allowed"),
    [
        ({"channel": "pigeon"}, "/channel", [one.value for one in ChannelName]),
        ({"events": ["task_begun"]}, "/events/0", "task_completed"),
        ({"channel": "email", "target": "ann"}, "/target", "name@example.org"),
        ({"channel": "email", "target": "ann@example.org\r\nBcc: bob@example.org"}, "/target", None),
    ],
)
async def test_invalid_subscriptions_are_refused(
    stack: Stack, body: dict[str, Any], pointer: str, allowed: Any
) -> None:
    answer = await subscribe(stack, **{"target": "https://hooks.example.org/", **body})
    assert answer.status_code == 422, answer.text
    [found] = answer.json()["errors"]
    assert found["pointer"] == pointer
    if isinstance(allowed, list):
        assert found["allowed"] == allowed
    elif allowed:
        assert allowed in found["allowed"]


async def test_subscription_name_is_unique_and_not_that_of_a_channel(subscribers: Subscribers) -> None:
    made = await subscribers.subscribe("https://hooks.example.org/", every_task=False)
    taken = await subscribe(subscribers.stack, name=made["name"], target="https://hooks.example.org/")
    assert (taken.status_code, taken.json()["type"]) == (409, "urn:errand:problem:name-taken")
    reserved = await subscribe(subscribers.stack, name="slack", target="https://hooks.example.org/")
    assert (reserved.status_code, reserved.json()["errors"][0]["pointer"]) == (422, "/name")


@pytest.mark.parametrize("kind", [ChannelName.WEBHOOK, ChannelName.SLACK, ChannelName.PUSH])
@pytest.mark.parametrize("addresses", [["10.0.0.1"], ["93.184.216.34", "169.254.169.254"], ["::1"]])
async def test_name_that_resolves_to_a_private_address_is_refused_when_sending(
    kind: ChannelName, addresses: list[str]
) -> None:
    backend = Recording()
    fetcher = Fetcher(backend=backend, resolve=names({"rebind.test": addresses}), setting="ERRAND_NOTIFY_PRIVATE_HOSTS")
    with pytest.raises(SendError, match="ERRAND_NOTIFY_PRIVATE_HOSTS"):
        await build_channels(fetcher, None)[kind](Envelope("x", "https://rebind.test/", NOTICE, [new_secret()]))
    assert backend.connected == []


@pytest.mark.parametrize("kind", [ChannelName.WEBHOOK, ChannelName.SLACK, ChannelName.PUSH])
async def test_a_redirect_is_not_followed(kind: ChannelName) -> None:
    backend = Recording([b"HTTP/1.1 307 Here\r\nLocation: http://169.254.169.254/\r\nContent-Length: 0\r\n\r\n"])
    fetcher = Fetcher(backend=backend, resolve=names({"hooks.test": ["93.184.216.34"]}))
    with pytest.raises(SendError, match=r"It answered 307\."):
        await build_channels(fetcher, None)[kind](Envelope("x", "http://hooks.test/", NOTICE, [new_secret()]))
    assert backend.connected == [("93.184.216.34", 80)]


@pytest.mark.parametrize(
    ("config", "pointer"),
    [
        ({"notify": ["nobody"]}, "/config/notify/0"),
        ({"escalate_to": "nobody", "escalate_after": 2_000}, "/config/escalate_to"),
        ({"escalate_after": 2_000}, "/config/escalate_after"),
        ({"escalate_to": {"clarification": "nobody"}, "escalate_after": 2_000}, "/config/escalate_to/clarification"),
        ({"routes": {"tool_approval": "nobody"}}, "/config/routes/tool_approval"),
        ({"reminder_after": 9_000, "ttl": 8_000}, "/config/reminder_after"),
    ],
)
async def test_task_with_unusable_notification_settings_is_refused(
    subscribers: Subscribers, config: dict[str, Any], pointer: str
) -> None:
    made = await subscribers.subscribe("https://hooks.example.org/", every_task=False)
    answer = await subscribers.stack.http.post("/tasks", json={"agent": "asker", "input": "x", "config": config})
    assert answer.status_code == 422, answer.text
    [found] = answer.json()["errors"]
    assert found["pointer"] == pointer
    if found["code"] == "unknown_channel":
        assert made["name"] in found["allowed"]


@pytest.mark.proves("S1-47")
async def test_task_that_names_channels_without_subscriptions_is_accepted_and_the_answer_says_so(stack: Stack) -> None:
    """The body as the definition of an async agent prints it, by a tenant that has nothing yet."""
    _, secret = await keys.create(stack.pool, f"fresh-{new_id()}", "first", list(Right))
    caller = {"Authorization": f"Bearer {secret}"}
    config: dict[str, Any] = {
        "ttl": 3_600_000,
        "notify": ["webhook", "slack"],
        "sandbox": "isolated",
        "approval_required": True,
    }
    body = {"agent": "code-reviewer", "input": {"path": "."}, "config": config}
    headers = {**caller, "Idempotency-Key": "printed"}
    answer = await stack.http.post("/tasks", json=body, headers=headers)
    assert answer.status_code == 202, answer.text
    handle = answer.json()
    assert (handle["status"], handle["poll_interval"]) == ("submitted", stack.settings.poll_interval_ms)
    for channel, notice in zip(config["notify"], handle["notices"], strict=True):
        assert notice.startswith(f"Nobody will be notified over {channel}: ") and "POST /subscriptions" in notice
    assert answer.headers["Location"] == f"/tasks/{handle['task_id']}"
    assert int(answer.headers["Retry-After"]) * 1_000 >= handle["poll_interval"]
    again = await stack.http.post("/tasks", json=body, headers=headers)
    assert (again.text, again.headers["Location"]) == (answer.text, answer.headers["Location"])
    assert "Idempotent-Replayed" in again.headers and "Idempotent-Replayed" not in answer.headers

    async def asks() -> dict[str, Any] | None:
        found: dict[str, Any] = (await stack.http.get(answer.headers["Location"], headers=caller)).json()
        return found if found["status"] == "input_required" else None

    assert (await eventually(asks, what="the plan waits for approval"))["task_id"] == handle["task_id"]
    subscription = {"name": "me", "channel": "webhook", "target": "https://hooks.example.org/", "every_task": False}
    assert (await stack.http.post("/subscriptions", json=subscription, headers=caller)).is_success
    second = (await stack.http.post("/tasks", json=body, headers=caller)).json()
    assert len(second["notices"]) == 1 and "over slack" in second["notices"][0]
    for task_id in (handle["task_id"], second["task_id"]):
        assert (await stack.http.post(f"/tasks/{task_id}/cancel", json={}, headers=caller)).is_success
