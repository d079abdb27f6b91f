"""The commands for conversations: what they send, what they print, and how they end."""

import json
from typing import Any

import pytest

from domain.events import MailboxUpdated, MessageReceived, SubagentEnded, SubagentStarted, TaskCompleted
from domain.sessions.session import Reason, Status, Usage
from tests.unit.cli.conftest import Cli, ndjson
from tests.unit.cli.stand_in import TASK, StandIn
from tests.unit.cli.test_chat import CHILD, record

END = TaskCompleted(status=Status.COMPLETED, reason=Reason.GOAL_REACHED, partial=False, usage=Usage())
MAIL = {
    **{"message_id": "m1", "conversation_id": TASK, "source_session_id": CHILD, "source_type": "subagent_result"},
    **{"subagent_name": "scout", "created_at": "2026-03-01T12:00:00Z", "delivered_to": None},
}


def session(id: str, name: str | None, children: list[Any], **more: Any) -> dict[str, Any]:
    known = {"session_id": id, "name": name, "agent": "researcher", "title": "Look", "status": "completed"}
    return {**known, "reason": "goal_reached", "children": children, **more}


def test_mailbox_is_shown_and_filtered_by_the_server(server: StandIn, cli: Cli) -> None:
    path = f"/conversations/{TASK}/mailbox"
    server.answers[path] = {"items": [MAIL], "pending_count": 1}
    done = cli("mailbox", TASK)
    header, row = done.stdout.splitlines()
    assert header.split() == ["SUBAGENT", "OUTCOME", "SESSION", "POSTED", "DELIVERED", "TO"]
    assert row.startswith(f"scout     result   {CHILD}") and row.endswith("waiting")
    assert f"./errand fire {TASK}" in done.stderr
    assert json.loads(cli("mailbox", TASK, "--live", "--all", "--json").stdout)["items"] == [MAIL]
    assert server.queries[-1] == {"live": "true", "all": "true"}
    server.answers[path] = {"items": [], "pending_count": 0}
    assert "the mailbox is empty" in cli("mailbox", TASK).stderr


def test_fire_follows_the_new_session(server: StandIn, cli: Cli) -> None:
    server.emit(END)
    server.turns = [(TASK, [])] * 3
    assert cli("fire", TASK, "sum up").exit_code == 0
    assert cli("fire", TASK, "--detach").stdout == f"{TASK}\n"
    assert json.loads(cli("fire", TASK, "--queue", "--detach", "--json").stdout)["session_id"] == TASK
    assert server.asked_for(f"/conversations/{TASK}/fire") == [{"input": "sum up"}, {}, {"if_busy": "queue"}]
    assert all("idempotency-key" in headers for headers in server.headers if "content-type" in headers)


def test_fork_continues_with_its_input_or_waits_for_a_message(server: StandIn, cli: Cli) -> None:
    server.sessions[CHILD] = {"conversation_id": "01jold"}
    server.answers["/conversations/01jold/fork"] = {"session_id": TASK, "conversation_id": TASK}
    server.emit(END)
    done = cli("fork", CHILD)
    assert done.stdout == f"{TASK}\n" and f"./errand chat --conversation {TASK}" in done.stderr
    assert cli("fork", CHILD, "--input", "shorter", "--agent", "assistant").exit_code == 0
    assert server.asked_for("/conversations/01jold/fork") == [
        {"from_session": CHILD, "execute": False},
        {"from_session": CHILD, "execute": True, "input": "shorter", "agent": "assistant"},
    ]
    assert cli("fork", "01junknown").exit_code == 4


def test_tree_shows_which_session_started_which(server: StandIn, cli: Cli) -> None:
    used = {"requests": 3, "input_tokens": 1_000, "output_tokens": 34, "cost_usd": 0.5}
    child = session(CHILD, "scout", [], status="failed", reason="ttl")
    server.answers[f"/conversations/{TASK}"] = record(
        sessions=[session(TASK, None, [child]), session("01jlast", None, [])], usage={"big": used}, complete=False
    )
    lines = cli("tree", TASK).stdout.splitlines()
    assert lines == [
        f"{TASK}  Talk  [2 waiting]",
        f"├─ researcher  {TASK}  completed (goal_reached)  Look",
        f"│  └─ scout (researcher)  {CHILD}  failed (ttl)  Look",
        "└─ researcher  01jlast  completed (goal_reached)  Look",
        "(only the newest sessions are shown)",
        "big: 3 calls, 1,034 tokens, $0.5000",
    ]
    assert ndjson(cli("tree", TASK, "--json").stdout)[0]["title"] == "Talk"


@pytest.mark.parametrize(
    ("args", "path", "body", "said"),
    [
        (("steer", TASK, "mind the gap"), f"/tasks/{TASK}/steer", {"message": "mind the gap"}, "before its next step"),
        (("promote", TASK), f"/tasks/{TASK}/promote", {}, "no longer waits"),
        (("terminate", TASK, "--yes"), f"/conversations/{TASK}/terminate", {}, "Terminated."),
        (("interrupt", TASK), f"/tasks/{TASK}/interrupt", {}, "cancelled"),
        (("interrupt", TASK, "--all"), f"/conversations/{TASK}/interrupt", {}, "3 sessions interrupted"),
        (("cancel", TASK, "--tree"), f"/tasks/{TASK}/cancel", {"scope": "tree"}, "cancelled"),
    ],
)
def test_commands_that_change_something_send_one_request(
    server: StandIn, cli: Cli, args: tuple[str, ...], path: str, body: dict[str, str], said: str
) -> None:
    server.answers[path], server.as_given = {"status": "cancelled", "interrupted": 3}, True
    done = cli(*args)
    assert done.exit_code == 0 and said in done.output
    assert server.asked_for(path) == [body]
    assert json.loads(cli(*args, "--json").stdout) == server.answers[path]
    server.refusals[path] = (409, {"type": "already-terminal", "status": 409, "detail": "The task has ended."})
    assert cli(*args).exit_code == 5


def test_terminate_asks_for_confirmation(server: StandIn, cli: Cli) -> None:
    server.answers[f"/conversations/{TASK}/terminate"] = {}
    assert cli("terminate", TASK, input="n\n").exit_code == 1
    assert server.asked_for(f"/conversations/{TASK}/terminate") == []
    assert cli("terminate", TASK, input="y\n").exit_code == 0


def test_terminate_ends_the_thread_of_a_subagent_by_its_reference(server: StandIn, cli: Cli) -> None:
    server.refusals[f"/conversations/{TASK}/terminate"] = (404, {"type": "unknown-conversation", "status": 404})
    server.answers[f"/threads/{TASK}/terminate"] = {}
    assert cli("terminate", TASK, "--yes").exit_code == 0
    assert server.asked_for(f"/threads/{TASK}/terminate") == [{}]
    server.refusals[f"/threads/{TASK}/terminate"] = (404, {"type": "unknown-thread", "status": 404})
    assert cli("terminate", TASK, "--yes").exit_code == 4


def test_waiting_subagents_are_listed_and_given_values(server: StandIn, cli: Cli) -> None:
    needs = [
        {"name": name, "kind": kind, "description": "x"} for name, kind in (("TOKEN", "secret"), ("REGION", "text"))
    ]
    request = {"request_id": "01jrequest", "thread_id": TASK, "agent": "deployer", "name": "green", "required": needs}
    server.answers["/variable-requests"] = {"items": [{**request, "missing": ["TOKEN", "REGION"]}]}
    path = f"/threads/{TASK}/variables/01jrequest"
    server.answers[path] = {"status": "started", "reference": "01jchild"}
    listed = cli("variables")
    assert "green (deployer)" in listed.stdout and "TOKEN, REGION" in listed.stdout
    assert json.loads(cli("variables", "list", "--json").stdout) == server.answers["/variable-requests"]
    given = cli("variables", "give", "01jreq", "REGION=north", input="hidden\n")
    assert given.exit_code == 0 and "01jchild" in given.output and "hidden" not in given.output
    assert cli("variables", "give", "01jreq", "REGION=a=b", "TOKEN=-", input="piped\n").exit_code == 0
    values = [{"TOKEN": "hidden", "REGION": "north"}, {"TOKEN": "piped", "REGION": "a=b"}]
    assert [body["variables"] for body in server.asked_for(path)] == values
    assert cli("variables", "give", "01jother").exit_code == 4
    for wrong in (("REGION",), ("=x",), ("A=1", "A=2"), ("A=-", "B=-")):
        assert cli("variables", "give", "01jreq", *wrong).exit_code == 2
    assert len(server.asked_for(path)) == 2


def test_variables_of_a_thread_are_shown_and_set(server: StandIn, cli: Cli) -> None:
    known = {"kind": "text", "description": "where", "source": "thread"}
    shown = [{**known, "name": "TOWN", "value": "Oslo"}, {**known, "name": "KEY", "value": None}]
    unset = {**known, "name": "FREE", "source": None, "value": None}
    server.answers[f"/threads/{TASK}/variables"] = {"variables": [*shown, unset]}
    lines = cli("variables", "show", TASK).stdout.splitlines()
    assert [line.split()[:2] for line in lines[1:]] == [["TOWN", "Oslo"], ["KEY", "(secret)"], ["FREE", "(none)"]]
    assert cli("variables", "set", TASK, "TOWN=Oslo").exit_code == 0
    assert server.asked[-1] == ("PUT", f"/threads/{TASK}/variables", {"variables": {"TOWN": "Oslo"}})


def test_variables_of_all_threads_are_listed_set_and_removed(server: StandIn, cli: Cli) -> None:
    server.answers["/variables"] = {"items": []}
    assert "no variables of all threads" in cli("variables", "shared").stderr
    found = [
        {"name": "TOWN", "value": "Oslo", "updated_by": "ann"},
        {"name": "KEY", "value": None, "updated_by": "bob"},
    ]
    server.answers["/variables"] = {"items": found}
    server.answers["/variables/OLD"] = {}
    done = cli("variables", "shared", "TOWN=Oslo", "--text", "--remove", "OLD")
    assert done.exit_code == 0, done.output
    lines = done.stdout.splitlines()
    assert [line.split() for line in lines[1:]] == [["TOWN", "Oslo", "ann"], ["KEY", "(secret)", "bob"]]
    cli("variables", "shared", "KEY=-", input="piped\n")
    changed = [(method, body) for method, path, body in server.asked if method in ("PUT", "DELETE")]
    assert [method for method, _ in changed] == ["DELETE", "PUT", "PUT"]
    assert changed[1][1] == {"variables": {"TOWN": "Oslo"}, "kind": "text"}
    assert changed[2][1] == {"variables": {"KEY": "piped"}, "kind": "secret"}
    assert json.loads(cli("variables", "shared", "--json").stdout) == server.answers["/variables"]


def test_steer_reads_its_text_from_stdin(server: StandIn, cli: Cli) -> None:
    server.answers[f"/tasks/{TASK}/steer"] = {}
    cli("steer", TASK, "-", input="two\nlines\n")
    assert server.asked_for(f"/tasks/{TASK}/steer") == [{"message": "two\nlines\n"}]


def test_conversations_are_listed_and_searched(server: StandIn, cli: Cli) -> None:
    item = {"conversation_id": TASK, "status": "open", "pending_count": 2, "updated_at": "2026-03-01T12:00:00Z"}
    server.answers["/conversations"] = {"items": [{**item, "title": "Talk"}], "next_cursor": "c9"}
    done = cli("conversations", "--search", "talk")
    assert done.stdout.splitlines()[1].startswith(f"{TASK}  open    2     ") and "--cursor c9" in done.stderr
    assert server.queries[-1] == {"q": "talk", "limit": "20"}


def test_attach_shows_subagents_mail_and_messages(server: StandIn, cli: Cli) -> None:
    server.emit(
        SubagentStarted(child_session_id=CHILD, name="scout", agent="researcher", description="look\x1b[2J around"),
        SubagentEnded(child_session_id=CHILD, name="scout", status=Status.FAILED),
        MailboxUpdated(pending_count=3),
        MessageReceived(kind="user", author="ci", preview="mind the gap"),
        END,
    )
    text = cli("attach", TASK).stdout
    assert f"  + scout (researcher): look[2J around  [{CHILD}]\n" in text
    assert f"  - scout failed  [{CHILD}]\n" in text
    assert "  mailbox: 3 waiting\n" in text and "  user message from ci: mind the gap\n" in text
