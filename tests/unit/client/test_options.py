"""What a program can set: the type of an output, timeouts and headers; what it gets when refused."""

import asyncio
import time
from collections.abc import Iterator
from typing import Any, get_type_hints

import pytest
from errand import AsyncErrand, Errand, ErrandError, RateLimited, Unexpected, Unreachable, requests
from errand.models import JsonObject
from pydantic import BaseModel
from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from api.routes.tasks import TaskQuery
from domain.policy.rules import Rule
from domain.task import Boundary, TaskConfig, TaskContext, TaskSpec
from tests.support.answers import Answers


class Report(BaseModel):
    title: str


@pytest.fixture
def server() -> Iterator[Answers]:
    with Answers() as made:
        yield made


USAGE: JsonObject = {"llm_calls": 1, "tool_invocations": 0, "input_tokens": 1, "output_tokens": 1, "cost_usd": 0.1}


def result(status: str, output: Any) -> JSONResponse:
    empty: JsonObject = {"reason": None, "partial": False, "error": None, "artifacts": [], "effects": []}
    log: JsonObject = {"effects_complete": True, "audit_log": [], "audit_log_complete": True}
    based = {"agent": "a", "agent_version": 1, "models": [], "sources": []}
    usage = {**USAGE, "duration_ms": 1, "tokens_consumed": 2}
    known = {"task_id": "t", "status": status, "output": output, "based_on": based, "usage": usage}
    return JSONResponse({**empty, **log, **known})


def test_the_output_has_the_type_that_the_caller_gives(server: Answers) -> None:
    with Errand(server.url) as errand:
        server.respond = lambda _: result("completed", {"title": "Done"})
        report = errand.wait("t", output=Report).output
        assert report == Report(title="Done")
        assert errand.result("t").output == {"title": "Done"}
        server.respond = lambda _: result("failed", "half a text")
        assert errand.result("t", output=Report).output is None
        server.respond = lambda _: result("completed", {"name": "Done"})
        with pytest.raises(Unexpected, match="title"):
            errand.wait("t", output=Report)


def test_timeout_and_headers_of_one_request(server: Answers) -> None:
    with Errand(server.url, "ek_key", headers={"X-Team": "ops"}) as errand:
        errand.with_options(headers={"X-Trace": "7"}).call("GET", "/a", dict)
        errand.call("GET", "/b", dict)
        first, second = ({name: one.headers.get(name) for name in ("x-team", "x-trace")} for one in server.requests)
        assert first == {"x-team": "ops", "x-trace": "7"} and second == {"x-team": "ops", "x-trace": None}
        assert server.requests[0].headers["authorization"] == "Bearer ek_key"

        def slow(_: Request) -> Response:
            time.sleep(1)
            return JSONResponse({})

        server.respond = slow
        with pytest.raises(Unreachable):
            errand.with_options(timeout=0.2, patience=0).call("GET", "/c", dict)


def test_too_many_requests_name_the_time_to_wait(server: Answers) -> None:
    server.respond = lambda _: JSONResponse({"detail": "slowly"}, 429, headers={"Retry-After": "7"})
    with Errand(server.url, patience=1) as errand, pytest.raises(RateLimited, match="slowly") as refused:
        errand.submit("tester", "Hello")
    assert refused.value.retry_after == 7 and len(server.requests) == 1


def test_only_a_post_with_a_key_is_repeated(server: Answers) -> None:
    server.respond = lambda _: JSONResponse({"detail": "restarting"}, 503)
    with Errand(server.url, patience=0.6) as errand:
        for key, requests_sent in ((None, 1), ("k", 2)):
            server.requests.clear()
            with pytest.raises(ErrandError, match="restarting"):
                errand.call("POST", "/schedules", dict, body={}, idempotency_key=key)
            assert len(server.requests) == requests_sent


async def test_the_timeout_of_a_wait_holds_in_both_clients(server: Answers) -> None:
    def running(_: Request) -> Response:
        time.sleep(0.2)
        return JSONResponse({"type": "not-terminal"}, 409)

    server.respond = running
    async with AsyncErrand(server.url) as errand:
        with pytest.raises(TimeoutError):
            await errand.wait("t", timeout=0.5)

    def blocking() -> None:
        with Errand(server.url) as errand, pytest.raises(TimeoutError):
            errand.wait("t", timeout=0.5)

    await asyncio.to_thread(blocking)


@pytest.mark.parametrize(
    ("given", "model", "without"),
    [
        (requests.TaskFields, TaskSpec, {"agent", "input"}),
        (requests.Context, TaskContext, set()),
        (requests.Config, TaskConfig, set()),
        (requests.Boundary, Boundary, set()),
        (requests.Rule, Rule, set()),
        (requests.TaskFilters, TaskQuery, {"cursor"}),
    ],
)
def test_fields_of_a_request_are_those_of_the_api(given: type[Any], model: type[BaseModel], without: set[str]) -> None:
    assert set(get_type_hints(given)) == set(model.model_fields) - without
