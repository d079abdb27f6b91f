"""The API as a program (`python -m api`), at the address in the settings."""

import gc
import logging
import sys

import uvicorn

from api.http.head_timeout import HeadTimeoutProtocol
from settings import MISCONFIGURED, Settings, SettingsError

# longer than clients keep idle connections, so that the server never closes one just as a request arrives
KEEP_ALIVE_SECONDS = 75
# requests that are still open after this are cancelled; streams have ended before, see `_draining` in api.app
DRAIN_SECONDS = 30


def main() -> None:
    try:
        settings = Settings.from_env()
    except SettingsError as error:
        logging.getLogger("errand.api").error("%s", error)
        sys.exit(MISCONFIGURED)
    gc.disable()  # imports make no garbage, and no collection needs to visit their objects
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
