"""A real git server over HTTP for tests, and repositories to serve."""

import base64
import json
import os
import re
import subprocess
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

AUTHOR = {
    "GIT_CONFIG_GLOBAL": os.devnull,
    "GIT_CONFIG_NOSYSTEM": "1",
    **{f"GIT_{who}_{what}": "t@example.org" for who in ("AUTHOR", "COMMITTER") for what in ("NAME", "EMAIL")},
}


def git(folder: Path, *arguments: str, given: str | None = None) -> str:
    env = {**os.environ, **AUTHOR}
    done = subprocess.run(["git", *arguments], cwd=folder, env=env, capture_output=True, text=True, input=given)
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


def make_repository(folder: Path, files: dict[str, str]) -> str:
    """A repository with one commit more than its files need; returns the newest."""
    folder.mkdir(parents=True)
    git(folder, "init", "-q", "-b", "main", ".")
    git(folder, "commit", "-q", "--allow-empty", "-m", "Begin")
    for name, text in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)
    git(folder, "add", "-A")
    git(folder, "commit", "-q", "-m", "Add the files")
    return git(folder, "rev-parse", "HEAD")


@dataclass
class Forge:
    """A stand-in of GitHub, Gitea and GitLab: pull requests by REST. It also decides who may use
    git: with a token, only who knows it."""

    token: str | None = None
    pulls: list[dict[str, Any]] = field(default_factory=list)
    asked: list[str] = field(default_factory=list)
    slow: float = 0.0  # seconds between making a pull request and answering

    def admits(self, authorization: str | None) -> bool:
        if self.token is None:
            return True
        kind, _, given = (authorization or "").partition(" ")
        if kind == "Basic":
            given = base64.b64decode(given).decode().partition(":")[2]
        return given == self.token

    def answer(self, method: str, path: str, body: bytes, authorization: str | None) -> tuple[int, Any]:
        self.asked.append(f"{method} {path}")
        if not re.search(r"/(pulls|merge_requests)(\?|$)", path):
            return 200, {"default_branch": "main", "sent": authorization, "number": len(self.asked)}
        home = re.split(r"/(?:pulls|merge_requests)", path)[0]
        here = [one for one in self.pulls if one["home"] == home]
        if method == "GET":
            return 200, here
        given = json.loads(body)
        branch = given.get("head") or given["source_branch"]
        if any(one["head"]["ref"] == branch for one in here):
            return 422, {"message": f"A pull request already exists for {branch}."}
        number, name = len(here) + 1, home.replace("%2F", "/").rpartition("/")[2]
        url = f"https://forge.example.org/{name}/pull/{number}"
        made = {"number": number, "iid": number, "html_url": url, "web_url": url, "given": given, "home": home}
        made |= {"head": {"ref": branch}, "source_branch": branch}
        self.pulls.append(made)
        time.sleep(self.slow)
        return 201, made


@contextmanager
def serve_repositories(root: Path, port: int, forge: Forge) -> Iterator[str]:
    """`git http-backend` for the repositories below a folder, and below /api/ a forge."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self._answer(b"")

        def do_POST(self) -> None:
            self._answer(self.rfile.read(int(self.headers.get("Content-Length") or 0)))

        def _answer(self, body: bytes) -> None:
            asked = urlsplit(self.path)
            if not forge.admits(self.headers.get("Authorization")):
                return self._send(401, b"", {"WWW-Authenticate": "Basic realm=git"})
            if asked.path.startswith("/api/"):
                status, answer = forge.answer(self.command, self.path, body, self.headers.get("Authorization"))
                return self._send(status, json.dumps(answer).encode(), {})
            if asked.path.startswith("/echo/"):  # a server that says too much
                said = f"refused: {self.headers.get('Authorization')}, {forge.token}\n".encode()
                return self._send(403, said, {"Content-Type": "text/plain"})
            env = os.environ | {
                "GIT_PROJECT_ROOT": str(root),
                "GIT_HTTP_EXPORT_ALL": "1",
                "REQUEST_METHOD": self.command,
                "PATH_INFO": asked.path,
                "QUERY_STRING": asked.query,
                "CONTENT_TYPE": self.headers.get("Content-Type", ""),
                "HTTP_CONTENT_ENCODING": self.headers.get("Content-Encoding", ""),
                "GIT_PROTOCOL": self.headers.get("Git-Protocol", ""),
                "REMOTE_ADDR": "127.0.0.1",
                "REMOTE_USER": "tester",  # may push
            }
            done = subprocess.run(["git", "http-backend"], input=body, env=env, capture_output=True)
            head, _, content = done.stdout.partition(b"\r\n\r\n")
            fields = dict(line.split(": ", 1) for line in head.decode().split("\r\n") if ": " in line)
            self._send(int(fields.pop("Status", "200 OK").split()[0]), content, fields)

        def _send(self, status: int, content: bytes, fields: dict[str, str]) -> None:
            self.send_response(status)
            for name, value in fields.items():
                self.send_header(name, value)
            self.send_header("Content-Length", str(len(content)))
            self.end_headers()
            with suppress(OSError):  # the other side may have been killed
                self.wfile.write(content)

        def log_message(self, format: str, *args: object) -> None:
            """Quiet."""

    server = ThreadingHTTPServer(("127.0.0.1", port), Handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield f"http://127.0.0.1:{port}"
    finally:
        server.shutdown()
        server.server_close()
