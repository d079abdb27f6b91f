"""The processes on top of PostgreSQL and Temporal, as they are configured for the supervisor."""

import json
import os
import socket
import threading
from http.server import BaseHTTPRequestHandler, HTTPServer

from deploy.stack import make_app_parts
from settings import Settings


def test_worker_is_ready_when_its_own_process_has_reported() -> None:
    """After kill -9 the row of the dead worker is still recent, and must not count for the next worker."""
    reported = f"{socket.gethostname()}/{os.getpid()}"

    class Readyz(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(200)
            self.end_headers()
            self.wfile.write(json.dumps({"workers": {reported: "bwrap"}}).encode())

        def log_message(self, *_: object) -> None:
            pass

    with HTTPServer(("127.0.0.1", 0), Readyz) as api:
        threading.Thread(target=api.serve_forever, daemon=True).start()
        try:
            app = make_app_parts(Settings(port=api.server_port), {}, None)
            ready = next(part.ready for part in app.parts if part.name == "worker")
            assert ready is not None
            assert ready(os.getpid())
            assert not ready(os.getpid() + 1)
        finally:
            api.shutdown()
    assert not ready(os.getpid())


def test_each_process_gets_its_own_secrets_only() -> None:
    secrets = {
        "anthropic_api_key": "model-secret",
        "smtp_password": "mail-secret",
        "local_token": "token-secret",
        "secret_keys": ("a:key-secret",),
        "database_url": "postgresql://errand:owner-secret@db/errand",
        "api_database_url": "postgresql://errand_api:api-role-secret@db/errand",
        "worker_database_url": "postgresql://errand_worker:worker-role-secret@db/errand",
    }
    app = make_app_parts(Settings(**secrets), {}, 8701)  # type: ignore[arg-type]
    expected = {
        "model": set(),
        "migrate": {"owner", "api-role", "worker-role"},
        "worker": {"model", "mail", "key", "worker-role"},
        "api": {"token", "key", "api-role"},
    }
    names = set().union(*expected.values())
    for part in (*app.parts, app.migrate):
        seen = {name for name in names if f"{name}-secret" in str(part.env)}
        assert seen == expected[part.name], part.name
        assert part.env["ANTHROPIC_API_KEY"] == (
            "model-secret" if part.name == "worker" else ""
        )  # and it inherits none
