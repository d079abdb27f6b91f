"""Runs the real stack with small stand-ins for the worker and the API. The argument is the data directory."""

import asyncio
import sys
from pathlib import Path

from deploy import stack
from deploy.child import Part
from deploy.local import up
from deploy.stack import AppParts, make_app_parts
from settings import Settings

API = """
import sys
from http.server import BaseHTTPRequestHandler, HTTPServer
class Handler(BaseHTTPRequestHandler):
    def do_GET(self):
        self.send_response(200)
        self.end_headers()
HTTPServer(("127.0.0.1", int(sys.argv[1])), Handler).serve_forever()
"""

# while it stops, it needs the model
WORKER = 'trap "sleep 0.3; curl -s -o /dev/null {}/ && echo the model answers; exit" TERM; sleep 1000 & wait'


def stand_ins(settings: Settings, connection: dict[str, str]) -> AppParts:
    migrate = make_app_parts(settings, connection).migrate
    address = f"http://127.0.0.1:{settings.port}"
    api = [sys.executable, "-c", API, str(settings.port)]
    return AppParts(
        migrate,
        [
            Part(name="worker", argv=["sh", "-c", WORKER.format(settings.anthropic_base_url)], env=migrate.env),
            Part(name="api", argv=api, address=address, check=f"{address}/healthz"),
        ],
    )


def log(text: str) -> None:
    sys.stdout.write(f"{text}\n")
    sys.stdout.flush()


if __name__ == "__main__":
    stack.make_app_parts = stand_ins
    settings = Settings(data_dir=Path(sys.argv[1]), port=0)
    asyncio.run(up(settings, on_ready=lambda info: log("ready"), log=log))
