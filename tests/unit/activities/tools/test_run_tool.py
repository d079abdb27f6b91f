"""The pure parts of a tool call."""

from activities.tools.registry import TOOLS
from activities.tools.run_tool import repetition_digest
from domain.sessions.session import AgentRef, Effect, SessionRef, ToolRequest


def request(name: str, *, node: str = "node-12345678", refusal: str | None = None) -> ToolRequest:
    return ToolRequest(
        ref=SessionRef(tenant="default", session_id="s", conversation_id="c"),
        agent=AgentRef(owner="default", name="tester", version=1),
        step=1,
        node=node,
        index=0,
        name=name,
        effect=Effect.READ,
        workspace_id="w",
        refusal=refusal,
    )


def digest(name: str, text: str = "same", node: str = "node-12345678", refusal: str | None = None) -> str | None:
    return repetition_digest(request(name, node=node, refusal=refusal), TOOLS.get(name), {"path": "a"}, "ok", text)


def test_polling_tools_leave_no_digest() -> None:
    assert {name for name in TOOLS if digest(name) is None} == {"async_task_result", "list_subagents", "wait_for_event"}


def test_digest_ignores_the_file_that_holds_a_long_result() -> None:
    first = digest("bash", "in the file .outputs/bash-aaaaaaaa-0.txt", "node-aaaaaaaa")
    assert first == digest("bash", "in the file .outputs/bash-bbbbbbbb-0.txt", "node-bbbbbbbb")
    assert first != digest("bash", "other")


def test_refused_call_leaves_a_digest_and_a_recorded_one_none() -> None:
    assert digest("no_such_tool") is None
    assert digest("no_such_tool", refusal="There is no such tool.") is not None
