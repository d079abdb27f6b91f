"""The client's pure parts; its models agree with the documented API and the existing events."""

import json
import os
from pathlib import Path

import httpx2
import pytest
from errand import errors, events, models, requests, transport
from errand.events import CLASSES, Event
from errand.requests import Answer
from errand.transport import Connection, Options, Retries, find_server

from api.app import create_app
from deploy.data_dir import locate_data_dir
from deploy.state import find_start
from domain.events import EVENTS
from settings import Settings


def test_the_api_answers_with_the_models_of_the_client() -> None:
    """The server's own class of the same name would have another name in the document."""
    documented = create_app().openapi()["components"]["schemas"]
    own = {name: one for name, one in vars(models).items() if isinstance(one, type) and issubclass(one, models.Model)}
    assert {name for name, one in own.items() if name not in documented and not one.__subclasses__()} == set()
    for name, one in own.items():
        if name in documented:
            assert documented[name]["properties"].keys() == one.model_fields.keys(), name


def test_events_have_the_fields_of_the_platforms_own() -> None:
    known = {event.type: event for event in EVENTS}
    for kind, mirror in CLASSES.items():
        own = set(mirror.model_fields) - set(Event.model_fields)
        assert own <= set(known[kind].model_fields), kind
        assert mirror.ended is known[kind].terminal, kind
    assert {event.type for event in EVENTS if event.terminal} == {kind for kind, one in CLASSES.items() if one.ended}


def test_an_event_of_a_newer_server_is_kept() -> None:
    event = events.event_of({"type": "new", "seq": 3, "session_id": "s", "at": "2026-01-01T00:00:00Z", "more": 1})
    assert type(event) is Event and event.data == {"more": 1}


def test_the_data_folder_is_that_of_the_command_line(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.delenv("ERRAND_DATA_DIR", raising=False)
    assert locate_data_dir(Settings()) in transport.data_folders()
    monkeypatch.setenv("ERRAND_DATA_DIR", str(tmp_path))
    assert transport.data_folders() == [locate_data_dir(Settings(data_dir=tmp_path))]


def test_client_without_stack_and_address_says_so(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for name in ("ERRAND_URL", "ERRAND_API_KEY"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("ERRAND_DATA_DIR", str(tmp_path))
    with pytest.raises(errors.Unreachable, match="errand up"):
        transport.find_server(None, None)
    (tmp_path / "token").write_text("secret")
    (tmp_path / "stack.json").write_text('{"pid": 1, "started": "long ago", "api_url": "http://127.0.0.1:9"}')
    with pytest.raises(errors.Unreachable):  # another process has that pid now
        transport.find_server(None, None)
    assert transport.find_server("http://elsewhere", None) == transport.Server("http://elsewhere")  # without a token


def test_a_stack_that_moved_is_found_again(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for name in ("ERRAND_URL", "ERRAND_API_KEY"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("ERRAND_DATA_DIR", str(tmp_path))

    def runs_at(port: int) -> None:
        state = {"pid": os.getpid(), "started": find_start(os.getpid()), "api_url": f"http://127.0.0.1:{port}"}
        (tmp_path / "stack.json").write_text(json.dumps(state))

    runs_at(1)
    (tmp_path / "token").write_text("secret\n")
    connection = Connection(lambda: find_server(None, None), None, httpx2.Client)
    assert connection.url("/tasks") == "http://127.0.0.1:1/tasks"
    assert connection.headers(Options(headers={"X": "1"}), {}) == {"Authorization": "Bearer secret", "X": "1"}
    (tmp_path / "stack.json").unlink()
    connection.look_again()  # the stack is being restarted
    assert connection.url("") == "http://127.0.0.1:1"
    runs_at(2)
    assert connection.url("") == "http://127.0.0.1:1"
    connection.look_again()
    assert connection.url("") == "http://127.0.0.1:2"


def test_requests_are_repeated_while_there_is_patience() -> None:
    retries = Retries(1.0)
    busy = Answer(problem=errors.problem_of(503, None, "away", None))
    assert [retries.pause_after(busy), retries.pause_after(OSError())] == [0.25, 0.5]
    with pytest.raises(errors.Unreachable, match="no answer for 1 seconds"):
        retries.pause_after(OSError())
    assert retries.pause_after(busy) is None  # the caller of the method raises the server's own error
    assert Retries(60).pause_after(Answer(problem=errors.problem_of(422, {}, "", None))) is None
    assert Retries(60).pause_after(Answer(problem=errors.problem_of(429, {}, "", "7"))) == 7.0


def test_an_answer_needs_a_request_unless_there_is_only_one() -> None:
    flow = requests.answer("t", "yes", None)
    assert next(flow).path == "/tasks/t/input-requests"
    with pytest.raises(errors.ErrandError, match="waits for 0 answers"):
        flow.send(Answer({"items": []}))


def test_an_artifact_elsewhere_is_not_requested() -> None:
    artifact = models.Artifact(type="pr", name="7", url="https://x", size=1, media_type="text/plain", file_id="f")
    with pytest.raises(errors.ErrandError, match="is an address"):
        next(requests.download(artifact))
