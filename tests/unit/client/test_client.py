"""The client's pure parts; its models agree with the documented API and the existing events."""

import inspect
import json
import os
from pathlib import Path

import httpx2
import pytest
from errand import Errand, errors, models, transport
from errand.events import CLASSES, Event
from errand.transport import Connection, Options, find_server

from api.app import create_app
from deploy.state import find_start
from domain.events import EVENTS


def test_the_api_answers_with_the_models_of_the_client() -> None:
    """The server's own class of the same name would have another name in the document."""
    documented = create_app().openapi()["components"]["schemas"]
    own = {name: one for name, one in vars(models).items() if isinstance(one, type) and issubclass(one, models.Model)}
    assert {name for name, one in own.items() if name not in documented and not one.__subclasses__()} == set()
    for name, one in own.items():
        if name in documented:
            assert documented[name]["properties"].keys() == one.model_fields.keys(), name


def test_every_method_describes_itself() -> None:
    for name in (name for name in dir(Errand) if not name.startswith("_")):
        method = getattr(Errand, name)
        assert inspect.getdoc(method), name
        assert not callable(method) or "NoneType" not in str(inspect.signature(method)), name


def test_events_have_the_fields_of_the_platforms_own() -> None:
    known = {event.type: event for event in EVENTS}
    for kind, mirror in CLASSES.items():
        own = set(mirror.model_fields) - set(Event.model_fields)
        assert own <= set(known[kind].model_fields), kind
        assert mirror.ended is known[kind].terminal, kind
    assert {event.type for event in EVENTS if event.terminal} == {kind for kind, one in CLASSES.items() if one.ended}


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
