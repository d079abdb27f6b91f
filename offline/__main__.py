"""Serves the offline model: python -m offline --port 8701."""

import click
import uvicorn

from offline.server import create_app, listen


@click.command()
@click.option("--host", default="127.0.0.1", show_default=True)
@click.option("--port", default=8701, show_default=True, help="0 takes any free port.")
def main(host: str, port: int) -> None:
    """Serve a stand-in for the Anthropic Messages API that answers from scripts."""
    listener = listen(host, port)
    click.echo(f"offline model on http://{host}:{listener.getsockname()[1]}")
    # some streams hang on purpose, so stopping does not wait for them
    config = uvicorn.Config(
        create_app(), log_level="critical", access_log=False, proxy_headers=False, timeout_graceful_shutdown=1
    )
    uvicorn.Server(config).run(sockets=[listener])


if __name__ == "__main__":
    main()
