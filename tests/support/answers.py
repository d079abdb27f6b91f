"""A server that is not ours: it answers as a test says, so that clients meet what an API of ours never sends."""

import asyncio
import threading
import time
from collections.abc import Callable

import uvicorn
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

METHODS = ["GET", "POST", "PUT", "DELETE"]


class Answers:
    """`respond` makes each response; `requests` has the requests."""

    def __init__(self) -> None:
        self.requests: list[Request] = []
        self.respond: Callable[[Request], Response] = lambda _: JSONResponse({})

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._server.servers[0].sockets[0].getsockname()[1]}"

    def __enter__(self) -> "Answers":
        app = Starlette(routes=[Route("/{path:path}", self._answer, methods=METHODS)])
        self._server = uvicorn.Server(uvicorn.Config(app, port=0, log_level="critical", lifespan="off", ws="none"))
        self._thread = threading.Thread(target=self._server.run, daemon=True)
        self._thread.start()
        while not self._server.started:
            time.sleep(0.01)
        return self

    def __exit__(self, *_: object) -> None:
        self._server.should_exit = self._server.force_exit = True
        self._thread.join(10)

    async def _answer(self, request: Request) -> Response:
        self.requests.append(request)
        return await asyncio.to_thread(self.respond, request)
