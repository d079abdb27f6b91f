"""Commands that show, download and cancel: output for people, JSON for scripts, exit codes."""

import json
import signal
import sys
from pathlib import Path
from typing import Any

import pytest
from errand.models import Verdict

from domain.events import AcceptanceChecked, TaskCompleted, TaskFailed
from domain.sessions.session import Reason, Status, Usage
from tests.support.terminal import Terminal
from tests.unit.cli.conftest import Cli
from tests.unit.cli.stand_in import TASK, StandIn

FULL: dict[str, Any] = {
    "task_id": TASK,
    "title": "Look around",
    "agent": "assistant",
    "status": "working",
    "progress": {"step": 2, "total_steps": 3, "message": "reading"},
    "created_at": "2026-03-01T12:00:00Z",
    "plan": {"steps": [{"title": "look", "status": "done"}, {"title": "read", "status": "in_progress"}]},
    "retry": {"attempt": 2, "reason": "overloaded", "next_at": "2026-03-01T12:01:00Z"},
    "usage": {"llm_calls": 1, "tool_invocations": 0, "input_tokens": 10, "output_tokens": 5, "cost_usd": None},
}


def test_tasks_prints_a_table_or_json(server: StandIn, cli: Cli) -> None:
    server.task = FULL
    done = cli("tasks", "--status", "working", "--status", "failed", "--agent", "assistant", "--limit", "1")
    assert done.exit_code == 0
    header, row = done.stdout.splitlines()
    assert header.split() == ["TASK", "STATUS", "AGENT", "STEP", "CREATED", "TITLE"]
    assert row.startswith(f"{TASK}  working  assistant  2/3 ") and row.endswith("ago  Look around")
    assert "./errand tasks --status working --status failed --agent assistant --limit 1 --cursor c1" in done.stderr
    assert json.loads(cli("tasks", "--json").stdout) == server.sent and server.sent["next_cursor"] == "c1"


def test_show_prints_status_progress_plan_and_usage(server: StandIn, cli: Cli) -> None:
    server.task = {**FULL, "cancel_requested": {"by": "me", "note": ""}}
    text = cli("show", TASK).stdout
    for line in (
        "working (cancel requested)",
        "step 2 of 3 reading",
        "attempt 2 failed: overloaded; next at 2026-03-01 12:01 (",
        "1 model call, 0 tool calls, 15 tokens, cost unknown",
        "  [x] look\n  [>] read",
    ):
        assert line in text
    server.task = {**FULL, "status": "input_required", "conversation_id": "c-1"}
    assert "`./errand inbox --conversation c-1` shows what it is waiting for" in cli("show", TASK).stderr
    server.task = {**FULL, "status": "failed", "reason": "ttl", "error": {"type": "ttl", "message": "too\nslow"}}
    text = cli("show", TASK).stdout
    assert "failed (ttl)" in text and "ttl: too slow" in text


def test_result_of_an_unfinished_task_is_exit_code_7(server: StandIn, cli: Cli) -> None:
    done = cli("result", TASK)
    assert (done.exit_code, done.stdout) == (7, "")
    assert "With --wait this command waits" in done.stderr
    assert json.loads(cli("result", TASK, "--json").stderr)["exit_code"] == 7


def test_result_waits_and_prints_only_the_output_on_stdout(server: StandIn, cli: Cli) -> None:
    server.close_after = 0
    server.emit(TaskFailed(status=Status.FAILED, reason=Reason.TTL, partial=True, usage=Usage()))
    artifact = {"type": "markdown", "name": "report.md", "url": "/files/f1", "size": 10, "file_id": "f1"}
    error = {"type": "ttl", "message": "time is up"}
    server.result = {
        "output": "so far\x1b[2J",
        "reason": "ttl",
        "partial": True,
        "error": error,
        "artifacts": [artifact],
        "acceptance": [{"kind": "text", "criterion": "names\na source", "passed": False, "why": "there is none"}],
    }
    done = cli("result", TASK, "--wait")
    assert "  not met: names a source (there is none)\n" in done.stderr
    assert (done.exit_code, done.stdout) == (1, "so far[2J\n")
    assert "failed (ttl, partial result)" in done.stderr and "ttl: time is up" in done.stderr
    assert f"./errand result {TASK} --artifact report.md -o FILE" in done.stderr
    assert json.loads(cli("result", TASK, "--json").stdout)["output"] == "so far\x1b[2J"


def test_result_prints_an_address_and_requests_nothing_there(server: StandIn, cli: Cli) -> None:
    server.task["status"] = "completed"
    url = "https://code.example.org/pull/7"
    server.result = {"artifacts": [{"type": "pull_request", "name": "7", "url": url, "file_id": "f1"}]}
    assert f"artifact: {url}" in cli("result", TASK).stderr
    assert cli("result", TASK, "--artifact", "7").stdout == f"{url}\n"


def test_result_downloads_artifacts_byte_by_byte(server: StandIn, cli: Cli, tmp_path: Path) -> None:
    server.task["status"] = "completed"
    server.result = {"artifacts": [{"name": "r.md", "url": "/files/old"}, {"name": "r.md", "url": "/files/new"}]}
    target = tmp_path / "out"
    assert cli("result", TASK, "--artifact", "r.md", "-o", str(target)).exit_code == 0
    assert target.read_bytes() == b"# Report\n\xff"
    assert cli("result", TASK, "--artifact", "r.md").stdout_bytes == b"# Report\n\xff"
    assert [path for _, path, _ in server.asked if path.startswith("/files")] == ["/files/new"] * 2
    missing = cli("result", TASK, "--artifact", "x")
    assert missing.exit_code == 4 and "it has: r.md" in missing.stderr
    assert cli("result", TASK, "--artifact", "r.md", "-o", str(tmp_path / "no" / "dir")).exit_code == 1


@pytest.mark.parametrize(
    "args", [["show"], ["attach"], ["result"], ["result", "--wait"], ["cancel"], ["show", "--json"]]
)
def test_unknown_id_is_exit_code_4(cli: Cli, args: list[str]) -> None:
    done = cli(*args, "01m00000000000000000000000")
    assert (done.exit_code, done.stdout) == (4, "")
    assert "There is nothing by that id." in done.stderr
    done = cli(*args, "../x y")
    assert (done.exit_code, done.stdout) == (4, "")
    assert "is not the beginning of an id" in done.stderr


def test_refusal_names_the_field_and_the_allowed_values(server: StandIn, cli: Cli) -> None:
    problem = {
        "type": "urn:errand:problem:unknown-agent",
        "title": "There is no such agent",
        "status": 422,
        "detail": "There is no agent of that name.",
        "errors": [{"pointer": "/agent", "code": "unknown", "message": "not known", "allowed": ["assistant", "r"]}],
    }
    server.refusals["/tasks"] = (422, problem)
    done = cli("run", "nobody", "hello")
    assert (done.exit_code, done.stdout) == (5, "")
    assert done.stderr == (
        "Error: There is no agent of that name. (422 unknown-agent)\n  /agent: not known (allowed: assistant, r)\n"
    )
    assert json.loads(cli("run", "nobody", "hello", "--json").stderr) == {**problem, "exit_code": 5}


def test_refusal_of_a_missing_key_says_how_to_give_one(server: StandIn, cli: Cli) -> None:
    server.refusals["/tasks"] = (
        401,
        {"type": "urn:errand:problem:unauthenticated", "status": 401, "detail": "No key."},
    )
    done = cli("tasks")
    assert done.exit_code == 5 and "ERRAND_API_KEY" in done.stderr


def test_agents_lists_all_or_shows_one(server: StandIn, cli: Cli) -> None:
    agent = {"name": "assistant", "description": "Helps.", "model": None, "tools": ["bash"], "prompt": "You help."}
    server.answers["/agents"] = {"items": [agent]}
    server.answers["/agents/assistant"] = agent
    assert cli("agents").stdout.splitlines()[1].split() == ["assistant", "default", "Helps."]
    text = cli("agents", "assistant").stdout
    assert "bash" in text and text.endswith("\nYou help.\n")
    assert cli("agents", "nobody").exit_code == 4
    assert cli("agents", "--json").stdout.startswith("{") and cli("agents", "show", "assistant").stdout == text


def test_agents_graph_prints_mermaid(server: StandIn, cli: Cli) -> None:
    desk = {"name": "desk", "prompt": "Help.", "handoffs": ["billing"], "version": 3, "shipped": True}
    server.answers["/agents"] = {"items": [desk, {"name": "billing", "prompt": "Bill."}]}
    assert "agent_desk == handoff ==> agent_billing" in cli("agents", "graph").stdout
    assert "agent_desk" not in cli("agents", "graph", "billing").stdout
    unknown = cli("agents", "graph", "nobody")
    assert unknown.exit_code == 4 and "there are: billing, desk" in unknown.stderr


@pytest.mark.parametrize("args", [["tasks"], ["show", TASK], ["agents"], ["attach", TASK], ["run", "a", "b"]])
def test_unreachable_server_is_exit_code_6(cli: Cli, args: list[str]) -> None:
    done = cli(*args, ERRAND_URL="http://127.0.0.1:9")
    assert done.exit_code == 6
    assert "cannot reach the API at http://127.0.0.1:9" in done.stderr and "./errand up" in done.stderr


def test_client_ignores_the_proxy_for_a_local_server(cli: Cli) -> None:
    assert cli("tasks", HTTP_PROXY="http://127.0.0.1:9", NO_PROXY="").exit_code == 0


def test_stack_commands_without_a_stack_say_so(cli: Cli) -> None:
    assert cli("status").exit_code == 6
    assert json.loads(cli("down", "--json").stdout) == {"stopped": False}
    done = cli("keys", "list")
    assert done.exit_code == 6 and "ERRAND_DATABASE_URL" in done.stderr


def test_help_lists_exit_codes_and_version_is_printed(cli: Cli) -> None:
    text = cli("--help").stdout
    assert "Exit codes:" in text and "130  detached" in text
    for command in ("up", "run", "attach", "tasks", "show", "result", "cancel", "status", "down"):
        assert "--json" in cli(command, "--help").stdout
    assert cli("--version").stdout == "errand 0.1.0\n"
    assert cli("frobnicate").exit_code == 2


def test_invalid_setting_is_a_usage_error(cli: Cli) -> None:
    done = cli("tasks", ERRAND_PORT="many")
    assert done.exit_code == 2 and "ERRAND_PORT" in done.stderr


@pytest.mark.parametrize(
    "arguments",
    [
        ["audit", TASK, "--head", "0" * 64],
        ["run", "a", "x", "--permission", "bash"],
    ],
)
def test_option_without_effect_is_a_usage_error(server: StandIn, cli: Cli, arguments: list[str]) -> None:
    done = cli(*arguments)
    assert done.exit_code == 2 and arguments[-2] in done.stderr


@pytest.mark.parametrize("fault", [KeyError, TypeError, AttributeError])
def test_fault_of_a_command_is_not_blamed_on_the_server(
    server: StandIn, cli: Cli, monkeypatch: pytest.MonkeyPatch, fault: type[Exception]
) -> None:
    def broken(*_: object) -> None:
        raise fault("ours")

    monkeypatch.setattr("cli.render.answers.emit", broken)
    assert isinstance(cli("show", TASK, "--json").exception, fault)


def test_response_of_an_unknown_form_is_an_error_and_its_json_is_passed_on(server: StandIn, cli: Cli) -> None:
    server.answers["/tasks"], server.as_given = {"items": [{"id": 7}]}, True
    done = cli("tasks")
    assert done.exit_code == 5 and "not as this version of Errand does (items.0.task_id: Field required)" in done.stderr
    assert json.loads(cli("tasks", "--json").stdout) == server.answers["/tasks"]


def test_cancel_agents_and_help_print_clear_messages(server: StandIn, cli: Cli) -> None:
    done = cli("cancel", TASK, "--reason", "wrong branch")
    assert (done.exit_code, done.stdout) == (0, "cancel requested; the task is still working\n")
    assert server.asked_for(f"/tasks/{TASK}/cancel") == [{"reason": "wrong branch"}]
    server.task["status"] = "completed"
    assert cli("cancel", TASK).stdout == "the task has ended already: completed\n"
    server.answers["/agents/scout"] = {
        **{"name": "scout", "limits": {"steps": 7, "tokens": None, "ttl_ms": 3_600_000}},
        "permissions": [{"permission": "bash", "pattern": "rm *", "action": "deny"}],
    }
    shown = cli("agents", "scout").stdout
    assert "steps 7, ttl 1 h\n" in shown and 'deny bash "rm *"' in shown and "None" not in shown
    server.answers["/agents/scout"] = {"name": "scout"}
    assert "permissions: no rules: its tools run without asking" in cli("agents", "scout").stdout
    groups = cli("--help").stdout
    assert "Questions and approvals:" in groups and groups.index("The stack:") < groups.index("Setting up:")


def test_verdicts_have_no_literal_escape_codes(server: StandIn, tmp_path: Path) -> None:
    verdict = Verdict(kind="text", criterion="short", passed=True, why="it is")
    end = TaskCompleted(status=Status.COMPLETED, reason=Reason.GOAL_REACHED, partial=False, usage=Usage())
    server.emit(AcceptanceChecked(round=1, passed=True, verdicts=[verdict]), end)
    with Terminal("attach", TASK, env={"ERRAND_URL": server.url, "XDG_STATE_HOME": str(tmp_path)}) as shown:
        assert shown.exit_code() == 0
    assert "\x1b[32mok\x1b[0m short: it is" in shown.raw


def test_ctrl_c_while_the_program_is_loaded_shows_no_traceback(server: StandIn, tmp_path: Path) -> None:
    argv = (sys.executable, "-X", "importtime", "-m", "cli", "attach", TASK)
    with Terminal(argv=argv, env={"ERRAND_URL": server.url, "XDG_STATE_HOME": str(tmp_path)}) as shown:
        shown.expect("click.core")  # the first of many imports
        shown.interrupt()
        assert shown.exit_code() in (-signal.SIGINT, 130)
    assert "Traceback" not in shown.text


def test_interrupt_says_what_happens_next(server: StandIn, cli: Cli) -> None:
    server.answers[f"/tasks/{TASK}/interrupt"] = {"status": "working"}
    done = cli("interrupt", TASK)
    assert done.stdout == "interrupt requested; the task is still working\n" and f"attach {TASK}" in done.stderr
    server.answers[f"/tasks/{TASK}/interrupt"] = {"status": "completed"}
    assert cli("interrupt", TASK).stdout == "the task has ended already: completed\n"
    server.answers[f"/conversations/{TASK}/interrupt"] = {"interrupted": 1, "session_ids": [TASK]}
    assert cli("interrupt", TASK, "--all").stderr == "1 session interrupted\n"
