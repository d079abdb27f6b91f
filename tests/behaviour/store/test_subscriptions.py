"""Every change of a subscription is in the audit log, with its author."""

from domain.audit import TENANT
from domain.ids import new_id
from domain.notifications import ChannelName, NewSubscription
from domain.sealing import KeyRing
from store import audit, notifications
from tests.support.launch import SECRET_KEYS
from tests.support.stack import Stack

KEYS = KeyRing.parse(SECRET_KEYS)


async def test_changes_of_subscriptions_are_in_the_audit_log(stack: Stack) -> None:
    tenant = f"t{new_id()}"
    body = NewSubscription(name="ops", channel=ChannelName.WEBHOOK, target="https://x.example/token")
    made = await notifications.create_subscription(stack.pool, tenant, body, "whsec_one", "key/a", KEYS)
    assert made is not None
    # nothing was changed
    assert await notifications.create_subscription(stack.pool, tenant, body, "whsec_two", "key/a", KEYS) is None
    assert await notifications.rotate_secret(stack.pool, tenant, made.id, "whsec_three", "key/b", KEYS)
    assert await notifications.enable_subscription(stack.pool, tenant, made.id, "key/b")
    assert await notifications.remove_subscription(stack.pool, tenant, made.id, "key/c")
    assert not await notifications.remove_subscription(stack.pool, tenant, made.id, "key/c")
    listed = await audit.find(stack.pool, tenant, chain=TENANT, limit=20)
    assert [(one.action, one.actor, one.subject) for one in listed] == [
        ("unsubscribe", "key/c", "ops"),
        ("enable_subscription", "key/b", "ops"),
        ("rotate_secret", "key/b", "ops"),
        ("subscribe", "key/a", "ops"),
    ]
    assert "token" not in str(listed) and "whsec" not in str(listed)
