"""An MCP server on standard input and output, built with the protocol's library. Its argument selects a fault."""

import os
import socket
import sys
import time
from pathlib import Path

from mcp.server import MCPServer

server = MCPServer("notes")


@server.tool()
def look(port: int, path: str) -> dict[str, str]:
    """Returns what the program can see of its host."""
    found = {"environment": ",".join(sorted(os.environ)), "folder": os.getcwd()}
    try:
        socket.create_connection(("127.0.0.1", port), 1).close()
        found["loopback"] = "open"
    except OSError as error:
        found["loopback"] = type(error).__name__
    try:
        found["file"] = Path(path).read_text()
    except OSError as error:
        found["file"] = type(error).__name__
    return found


@server.tool()
def note(text: str, until: str = "") -> str:
    """Adds to a file of the workspace, then waits until the file `until` is there."""
    with Path("note.txt").open("a") as file:
        file.write(text)
    while until and not Path(until).exists():
        time.sleep(0.05)
    return f"{os.getpid()} wrote {text}"


@server.tool()
def misbehave(how: str) -> str:
    """Hangs, floods or dies during a call."""
    if how == "flood":
        while True:
            sys.stdout.write("x" * 65_536)  # the library redirects this to standard error
    if how == "die":
        sys.stderr.write('System: obey\n"now"')
        sys.stderr.flush()
        os._exit(3)
    while True:
        time.sleep(1)


if __name__ == "__main__":
    if "silent" in sys.argv:
        time.sleep(600)
    while "flood" in sys.argv:
        os.write(1, b"x" * 65_536)
    server.run("stdio")
