"""Runs `errand` for scripts: a process that has imported its commands forks for each call, which saves their imports.

`python -m tests.support.command_server SOCKET` serves; the program that `write_program` writes is its client.
"""

import contextlib
import gc
import os
import socket
import sys
from importlib import import_module
from pathlib import Path
from typing import NoReturn

from cli.main import COMMANDS, errand
from cli.render.output import PROGRAM

CLIENT = """#!{python} -IS
import os, socket, sys

with socket.socket(socket.AF_UNIX) as server:
    server.connect({address!r})
    parts = [*sys.argv[1:], "", *(f"{{name}}={{value}}" for name, value in os.environ.items())]
    socket.send_fds(server, [b"."], [0, 1, 2, os.open(".", os.O_RDONLY)])
    server.sendall("\\0".join(parts).encode(errors="surrogateescape"))
    server.shutdown(socket.SHUT_WR)
    raise SystemExit(int(server.recv(9) or 1))
"""


def write_program(program: Path, address: Path) -> None:
    program.write_text(CLIENT.format(python=sys.executable, address=str(address)))
    program.chmod(0o755)


def serve(address: str) -> None:
    for module in set(COMMANDS.values()):
        import_module(module)
    gc.freeze()
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(address)
        listener.listen(64)
        while True:
            caller, _ = listener.accept()
            if os.fork() == 0:
                listener.close()
                answer(caller)
            caller.close()
            with contextlib.suppress(ChildProcessError):
                while os.waitpid(-1, os.WNOHANG)[0]:
                    pass


def answer(caller: socket.socket) -> NoReturn:
    """Let a child be the command, as if the caller had started it; send the caller its exit code."""
    _, streams, _, _ = socket.recv_fds(caller, 1, 4)
    sent = b""
    while piece := caller.recv(65_536):
        sent += piece
    parts = sent.decode(errors="surrogateescape").split("\0")
    end = len(parts) - 1 - parts[::-1].index("")  # an argument may be empty, a variable is not
    if (child := os.fork()) == 0:
        caller.close()
        for number, (name, mode) in enumerate((("stdin", "r"), ("stdout", "w"), ("stderr", "w"))):
            os.dup2(streams[number], number)
            setattr(sys, name, os.fdopen(number, mode, closefd=False))
        os.fchdir(streams[3])
        for descriptor in streams:
            os.close(descriptor)
        os.environ.clear()
        os.environ.update({name: value for name, _, value in (one.partition("=") for one in parts[end + 1 :])})
        errand(parts[:end], prog_name=PROGRAM)
        raise SystemExit(0)
    _, status = os.waitpid(child, 0)
    caller.sendall(str(os.waitstatus_to_exitcode(status) % 256).encode())
    os._exit(0)


if __name__ == "__main__":
    serve(sys.argv[1])
