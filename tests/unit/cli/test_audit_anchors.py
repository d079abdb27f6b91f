import json
import threading
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path

import pytest

from cli.commands import audit
from cli.errors import CliError


def test_a_file_grows_and_gives_its_last_head(tmp_path: Path) -> None:
    file = tmp_path / "audit.jsonl"
    assert audit.last_head(str(file)) is None
    for head in ("one", "two"):
        audit.keep(str(file), head, 3, 1)
    assert audit.last_head(str(file)) == "two"
    assert [json.loads(line)["head"] for line in file.read_text().splitlines()] == ["one", "two"]
    file.write_text("nothing\n")
    with pytest.raises(CliError, match="heads"):
        audit.last_head(str(file))


def test_an_address_receives_the_head() -> None:
    received: list[dict[str, object]] = []

    class Receiver(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            received.append(json.loads(self.rfile.read(int(self.headers["content-length"]))))
            self.send_response(204 if self.path == "/ok" else 500)
            self.end_headers()

        def log_message(self, *_: object) -> None:
            pass

    with HTTPServer(("127.0.0.1", 0), Receiver) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        url = f"http://127.0.0.1:{server.server_port}"
        try:
            audit.keep(f"{url}/ok", "one", 3, 1)
            with pytest.raises(CliError, match="kept"):
                audit.keep(f"{url}/broken", "two", 3, 1)
        finally:
            server.shutdown()
    assert [one["head"] for one in received] == ["one", "two"] and audit.last_head(url) is None
