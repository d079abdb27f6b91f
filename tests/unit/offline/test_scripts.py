"""The scripts for tests: each replies as its marker says, from the request alone."""

from typing import Any

import pytest

from offline.markers import MarkerError, find_markers, without_markers
from offline.reply import Reply
from offline.scripts import answer
from offline.transcript import Transcript

TOOLS = [{"name": "list_files"}, {"name": "report_progress"}, {"name": "write_file"}, {"name": "read_file"}]


def conversation(*messages: Any, tools: Any = TOOLS, system: str = "", **extra: Any) -> Transcript:
    roles = ("user", "assistant")
    listed = [{"role": roles[index % 2], "content": content} for index, content in enumerate(messages)]
    return Transcript.of({"model": "m", "system": system, "tools": tools, "messages": listed, **extra})


def run(prompt: str, rounds: int = 50, **options: Any) -> tuple[list[Reply], Transcript]:
    """Plays a conversation in which each call returns `result of NAME`, until the answer."""
    messages: list[Any] = [prompt]
    replies: list[Reply] = []
    while len(replies) < rounds:
        reply = answer(conversation(*messages, **options))
        replies.append(reply)
        if not reply.calls:
            break
        ids = [f"t{len(messages)}-{index}" for index in range(len(reply.calls))]
        messages.append(
            [
                {"type": "tool_use", "id": id, "name": c.name, "input": c.input}
                for id, c in zip(ids, reply.calls, strict=True)
            ]
        )
        messages.append(
            [
                {"type": "tool_result", "tool_use_id": id, "content": [{"type": "text", "text": f"result of {c.name}"}]}
                for id, c in zip(ids, reply.calls, strict=True)
            ]
        )
    return replies, conversation(*messages, **options)


def test_count_continues_after_a_summary_has_replaced_the_context() -> None:
    _, half = run("[[script:count n=5]]", rounds=3)
    replaced = answer(conversation(*[m["content"] for m in half.messages], tools=[])).text
    assert "3 tool calls so far" in replaced
    replies, again = run(f"<checkpoint>\n{replaced}\n</checkpoint>")
    assert again.request == "[[script:count n=5]]"
    assert [len(reply.calls) for reply in replies] == [1, 1, 0]
    assert replies[-1].text.startswith("Counted 5 steps.")
    assert "5 tool calls so far" in answer(conversation(*[m["content"] for m in again.messages], tools=[])).text


def test_forever_calls_a_tool_in_every_reply() -> None:
    replies, last = run("[[script:forever]]", rounds=20)
    assert all(reply.calls for reply in replies)
    assert len({str(reply.calls) for reply in replies}) == 20
    same, _ = run('[[script:repeat json=[[{"name":"list_files"}]]]]', rounds=5)
    assert len({str(reply.calls) for reply in same}) == 1
    messages = [message["content"] for message in last.messages]
    forbidding: tuple[dict[str, Any], ...] = ({"tools": []}, {"tool_choice": {"type": "none"}})
    for without in forbidding:
        final = answer(conversation(*messages, **without))
        assert not final.calls
        assert "20 tool calls so far" in final.text
        assert "result of report_progress" in final.text


def test_new_request_starts_a_new_script() -> None:
    _, first = run("[[script:count n=1]]")
    messages = [message["content"] for message in first.messages]
    assert answer(conversation(*messages, "Counted.", "[[script:echo]] again")).text == "again"
    plain = answer(conversation(*messages, "Counted.", "And now?"))
    assert not plain.calls
    assert "And now?" in plain.text and "Counted." in plain.text


@pytest.mark.parametrize(
    ("agent", "asked"), [("assistant", "List three prime ministers."), ("somebody-new", "Who wrote Faust?")]
)
def test_request_without_a_script_is_answered_as_such(agent: str, asked: str) -> None:
    reply = answer(conversation(asked, system=f'You are the agent "{agent}".\nBe good.'))
    assert not reply.calls
    for word in ("offline stand-in", asked, "4 tools", "ANTHROPIC_API_KEY"):
        assert word in reply.text


def test_markers_are_parsed_with_json_inside() -> None:
    text = 'a [[script:tools json=[{"name":"x","input":{"t":"]]"}}] n=3]] b [[fault:429 message="two words"]] c'
    [script] = find_markers(text, "script")
    assert script.options == {"json": [{"name": "x", "input": {"t": "]]"}}], "n": "3"}
    assert find_markers(text, "fault")[0].options == {"message": "two words"}
    assert without_markers(text) == "a  b  c"


@pytest.mark.parametrize("agent", ["assistant", "researcher", "code-reviewer", "coder", "orchestrator", "mender"])
def test_sample_agent_without_most_of_its_tools_still_ends(agent: str) -> None:
    system = f'You are the agent "{agent}".'
    replies, _ = run("Look at the primes and review the files", system=system, tools=[{"name": "list_files"}])
    assert replies[-1].text and not replies[-1].calls


@pytest.mark.parametrize("text", ["[[script:count n=3", "[[script:count what]]", "[[script:tools json={]]"])
def test_malformed_marker_is_an_error(text: str) -> None:
    with pytest.raises(MarkerError):
        find_markers(text, "script")
