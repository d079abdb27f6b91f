"""Notices that somebody else has answered a request while a person is asked for the answer."""

import threading
from contextlib import suppress
from typing import TYPE_CHECKING, Self

from errand.models import InputRequest

from cli.api import Api
from cli.errors import CliError

if TYPE_CHECKING:
    from prompt_toolkit import Application

POLL_SECONDS = 1.0


class SettledElsewhere(Exception):
    """The request was answered or has expired while its prompt was shown."""


class RequestWatch:
    """Asks the server in a thread whether the request is still open, and ends the prompt as soon as it is not."""

    def __init__(self, api: Api, request: InputRequest) -> None:
        self._api = api
        self._request = request
        self._stopped = threading.Event()
        self._settled = False
        self._app: Application[str] | None = None

    def __enter__(self) -> Self:
        threading.Thread(target=self._watch, daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stopped.set()

    def prompt_shown(self) -> None:
        """A prompt begins, in the thread and event loop of this call."""
        from prompt_toolkit.application import get_app

        self._app = get_app()
        if self._settled:
            self._end_prompt()

    def _watch(self) -> None:
        from cli.answering import open_requests

        # its own connection, because the main thread sends the answer over the other one
        with Api.like(self._api, patience=0) as api:
            while not self._stopped.wait(POLL_SECONDS):
                with suppress(CliError):  # the API may be restarting
                    if self._request.id not in {one.id for one in open_requests(api, self._request.session_id)}:
                        break
            else:
                return
        self._settled = True
        if self._app and self._app.loop:
            with suppress(RuntimeError):  # that prompt has just ended; the next one asks for `_settled`
                self._app.loop.call_soon_threadsafe(self._end_prompt)

    def _end_prompt(self) -> None:
        # checked in the prompt's own thread: it may have ended since this call was scheduled
        if self._app and self._app.is_running and not self._app.is_done and not self._stopped.is_set():
            self._app.exit(exception=SettledElsewhere())
