"""The API as a program (`python -m api`), at the address of the settings."""

import gc
import logging
import sys

import uvicorn

from api.http.head_timeout import HeadTimeoutProtocol
from settings import MISCONFIGURED, Settings, SettingsError

KEEP_ALIVE_SECONDS = 75  # longer than clients keep idle connections: the server must not close one as a request arrives
DRAIN_SECONDS = 30


def main() -> None:
    try:
        settings = Settings.from_env()
    except SettingsError as error:
        logging.getLogger("errand.api").error("%s", error)
        sys.exit(MISCONFIGURED)
    gc.disable()  # imports make no garbage, and what they make stays: nobody has to look through it, now or later
    from api.app import app

    gc.freeze()
    gc.enable()
    uvicorn.run(
        app,
        host=settings.host,
        port=settings.port,
        http=HeadTimeoutProtocol,
        timeout_keep_alive=KEEP_ALIVE_SECONDS,
        timeout_graceful_shutdown=min(DRAIN_SECONDS, int(settings.drain_seconds)),
    )


if __name__ == "__main__":
    main()
