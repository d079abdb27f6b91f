"""The API as a program (`python -m api`), at the address in the settings."""

import asyncio
import logging
import sys

import h11
import uvicorn
from uvicorn.protocols.http.h11_impl import H11Protocol

from settings import MISCONFIGURED, Settings, SettingsError

# longer than clients keep idle connections, so that the server never closes one just as a request arrives
KEEP_ALIVE_SECONDS = 75
# requests that are still open after this are cancelled; streams have ended before, see `_draining` in api.app
DRAIN_SECONDS = 30
HEAD_SECONDS = 15.0
_RESPONSE = b"HTTP/1.1 408 Request Timeout\r\nConnection: close\r\nContent-Length: 0\r\n\r\n"


class HeadTimeoutProtocol(H11Protocol):
    """HTTP with a time limit for the head of a request: uvicorn waits forever for a head that is incomplete or never
    sent, and a few thousand such connections would exhaust its file descriptors."""

    _timer: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self._timer = self.loop.call_later(HEAD_SECONDS, self._expire)

    def data_received(self, data: bytes) -> None:
        super().data_received(data)
        if self.conn.their_state is not h11.IDLE:
            self._disarm()
        elif self._timer is None:  # the first bytes of a further request on this connection
            self._timer = self.loop.call_later(HEAD_SECONDS, self._expire)

    def connection_lost(self, exc: Exception | None) -> None:
        self._disarm()
        super().connection_lost(exc)

    def _disarm(self) -> None:
        if self._timer:
            self._timer.cancel()
            self._timer = None

    def _expire(self) -> None:
        self._timer = None
        if self.transport and not self.transport.is_closing():
            self.transport.write(_RESPONSE)
            self.transport.close()


def main() -> None:
    try:
        settings = Settings.from_env()
    except SettingsError as error:
        logging.getLogger("errand.api").error("%s", error)
        sys.exit(MISCONFIGURED)
    from api.app import app  # only with valid settings

    uvicorn.run(
        app,
        host=settings.host,
        port=settings.port,
        http=HeadTimeoutProtocol,
        ws="wsproto",
        timeout_keep_alive=KEEP_ALIVE_SECONDS,
        timeout_graceful_shutdown=min(DRAIN_SECONDS, int(settings.drain_seconds)),
    )


if __name__ == "__main__":
    main()
