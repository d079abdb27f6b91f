"""A command in the sandbox cannot see, reach or change anything on the host."""

import asyncio
import contextlib
import os
import secrets
import socket
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path

import pytest

from activities.sandbox import Sandbox, SandboxLimits, SandboxResult
from settings import ROOT


async def run(sandbox: Sandbox, workspace: Path, command: str, **changes: object) -> SandboxResult:
    given: dict[str, object] = {"network": None, "timeout_s": 20.0, "limits": SandboxLimits()}
    return await sandbox.run(command, workspace=workspace, **(given | changes))  # type: ignore[arg-type]


@dataclass(frozen=True)
class Secret:
    path: Path
    text: str

    def intact(self) -> bool:
        return {item.name: item.read_text() for item in self.path.parent.iterdir()} == {self.path.name: self.text}


@pytest.fixture
def secret(tmp_path: Path) -> Secret:
    """A file that everybody on the host may read and write: only the sandbox protects it."""
    made = Secret(tmp_path / "outside" / "secret", secrets.token_hex())
    made.path.parent.mkdir()
    made.path.parent.chmod(0o777)
    made.path.write_text(made.text)
    made.path.chmod(0o666)
    return made


async def test_the_workspace_and_the_tools_of_the_host_are_usable(sandbox: Sandbox, workspace: Path) -> None:
    (workspace / "given").write_text("given")
    (workspace / "folder").mkdir()
    python = 'import subprocess as s, threading; threading.Thread().start(); print(s.check_output(["echo", "python"]))'
    command = f"""
    set -e
    cat given; echo more >> given; echo new > folder/new; git init -q repo; git -C repo status --short
    awk 'BEGIN {{ print "awk" }}'; python3 -c '{python}'; echo err >&2; echo $((6 * 7)) > $TMPDIR/x; cat $TMPDIR/x
    """
    result = await run(sandbox, workspace, command)
    assert result.exit_code == 0, result.output
    assert [word for word in ("given", "awk", "python", "err", "42") if word not in result.output] == []
    assert (workspace / "given").read_text() == "givenmore\n"
    (workspace / "folder/new").write_text("the worker can change what the command made")
    assert result.backend == sandbox.name


async def test_a_module_that_was_just_edited_is_the_one_that_runs(sandbox: Sandbox, workspace: Path) -> None:
    """If length and modification time are the same, Python would use the old compiled file."""
    module = workspace / "sums.py"
    for operator, shown in (("-", "1\n"), ("+", "5\n")):
        module.write_text(f"print(3 {operator} 2)\n")
        os.utime(module, (1_700_000_000, 1_700_000_000))
        assert (await run(sandbox, workspace, "python3 -c 'import sums'")).output == shown


async def test_exit_codes_and_order_of_output_are_kept(sandbox: Sandbox, workspace: Path) -> None:
    result = await run(sandbox, workspace, "echo one; echo two >&2; echo three; exit 7")
    assert (result.exit_code, result.output) == (7, "one\ntwo\nthree\n")


async def all_fail(sandbox: Sandbox, workspace: Path, commands: list[str]) -> str:
    """Run each command in a separate shell; return the output of all."""
    script = "\n".join(f"mkdir {at}; ( cd {at}; {command} ) && echo WORKED {at}" for at, command in enumerate(commands))
    result = await run(sandbox, workspace, f"{script}\necho FINISHED")
    assert "FINISHED" in result.output, result.output
    worked = [commands[int(line.split()[1])] for line in result.output.splitlines() if line.startswith("WORKED")]
    assert worked == []
    return result.output


READS = ["cat {secret}", "cat /etc/shadow", "ls /root", "ls $(dirname {secret})", "cat /proc/1/root{secret}"]
READS += [f"cat /proc/{whose}/{'root'}/etc/shadow" for whose in ("self", "*")]  # the host's files by another path
READS += ["head -c 10 /dev/mem", f"ls /{'home'}/*"]
READS += ["ln -s {secret} link; cat link", "ln {secret} hard", "cat /proc/1/cwd/../outside/secret", "ls /var/log"]
READS += ["cd /proc/self/cwd/../outside && cat secret", "python3 -c 'import os; os.chroot(\".\")'"]
READS += ["cat /run/* /var/run/*", "ls /sys/kernel/security", "dd if=/dev/sda count=1", "cat /etc/machine-id"]


@pytest.mark.proves("S1-64")
async def test_command_reads_nothing_of_the_host(sandbox: Sandbox, workspace: Path, secret: Secret) -> None:
    output = await all_fail(sandbox, workspace, [command.format(secret=secret.path) for command in READS])
    assert secret.text not in output
    assert "root:" not in output


WRITES = ["echo x > {outside}/new", "echo x > {outside}/secret", "rm {outside}/secret", "touch /usr/bin/new"]
WRITES += ["mkdir /new", "echo x > /dev/new", "echo x > /etc/passwd", "mount -t tmpfs none /usr"]
WRITES += ["ln -s {outside} link; echo x > link/new", "echo x > /proc/sys/kernel/hostname", "mknod device c 1 1"]


async def test_command_changes_nothing_of_the_host(sandbox: Sandbox, workspace: Path, secret: Secret) -> None:
    await all_fail(sandbox, workspace, [command.format(outside=secret.path.parent) for command in WRITES])
    assert secret.intact()


async def test_no_port_of_the_host_is_reached(sandbox: Sandbox, workspace: Path) -> None:
    reached: list[bool] = []

    async def accept(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        reached.append(True)
        writer.close()

    server = await asyncio.start_server(accept, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    command = f"(exec 3<>/dev/tcp/127.0.0.1/{port}) || (exec 3<>/dev/tcp/localhost/{port}) && echo CONNECTED"
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as datagrams:
        datagrams.bind(("127.0.0.1", 0))
        datagrams.settimeout(0.2)
        result = await run(sandbox, workspace, f"{command}; echo x > /dev/udp/127.0.0.1/{datagrams.getsockname()[1]}")
        with pytest.raises(TimeoutError):
            datagrams.recv(10)
    server.close()
    assert "CONNECTED" not in result.output
    assert reached == []


async def test_no_socket_of_the_host_is_reached(sandbox: Sandbox, workspace: Path, tmp_path: Path) -> None:
    name = f"errand-{secrets.token_hex(8)}"
    with socket.socket(socket.AF_UNIX) as abstract, socket.socket(socket.AF_UNIX) as named:
        abstract.bind(f"\0{name}")
        abstract.listen()
        path = Path("/tmp") / name
        named.bind(str(path))
        named.listen()
        path.chmod(0o777)
        script = (
            "import socket, sys\nsocket.socket(socket.AF_UNIX).connect(sys.argv[1].replace('@', chr(0)))\nprint('IN')"
        )
        (workspace / "connect.py").write_text(script)
        try:
            for address in (f"@{name}", str(path)):
                result = await run(sandbox, workspace, f"python3 connect.py {address}")
                assert result.exit_code == 1 and "IN" not in result.output, result.output
        finally:
            path.unlink()


DENIED = [
    "import socket; socket.socket(40, 1)",  # AF_VSOCK: not covered by network namespaces
    "import socket; socket.socket(17, 3)",  # AF_PACKET
    "import ctypes, sys; sys.exit(ctypes.CDLL(None).ptrace(16, 1, 0, 0) != 0)",
    "import ctypes, sys; sys.exit(ctypes.CDLL(None).unshare(0x10000000) != 0)",
    "import ctypes, sys; sys.exit(ctypes.CDLL(None).syscall(321, 0, 0, 0) < 0)",  # bpf
    "import ctypes, sys; sys.exit(ctypes.CDLL(None).syscall(425, 1, 0) < 0)",  # io_uring_setup
    "import ctypes, sys; sys.exit(ctypes.CDLL(None).syscall(250, 0, 0, 0) < 0)",  # keyctl
    "import ctypes, sys; sys.exit(ctypes.CDLL(None).syscall(323, 0) < 0)",  # userfaultfd
]


@pytest.mark.skipif(os.uname().machine != "x86_64", reason="the numbers are those of x86_64")
async def test_dangerous_calls_are_denied(sandbox: Sandbox, workspace: Path) -> None:
    began = time.monotonic()
    await all_fail(sandbox, workspace, [f"python3 -c '{code}'" for code in DENIED])
    assert time.monotonic() - began < 10  # a ptrace call that hangs the sandbox would be a successful attack


async def test_no_process_of_the_host_is_seen_or_signalled(sandbox: Sandbox, workspace: Path) -> None:
    marker = secrets.token_hex(8)
    victim = await asyncio.create_subprocess_exec("sleep", "60", env={"MARK": marker}, cwd="/")
    try:
        command = (
            f"cat /proc/{victim.pid}/environ; kill -9 {victim.pid}; kill -9 -1 & wait; cat /proc/*/environ; ps aux"
        )
        result = await run(sandbox, workspace, command, timeout_s=5.0)
        assert marker not in result.output
        with pytest.raises(TimeoutError):  # the process is still running
            await asyncio.wait_for(victim.wait(), 0.3)
    finally:
        victim.kill()
        await victim.wait()


_SPY = """
import asyncio, sys
from dataclasses import dataclass
from pathlib import Path
from activities.sandbox import SandboxLimits, bubblewrap, landlock

async def main():
    for back_end in [*bubblewrap.candidates(), *landlock.candidates()]:
        result = await back_end.run(
            "env; cat /proc/*/environ /proc/1/cmdline; set", workspace=Path(sys.argv[1]), network=None, timeout_s=10,
            limits=SandboxLimits())
        print(result.output)

asyncio.run(main())
"""


async def test_the_environment_of_the_worker_is_not_seen(workspace: Path) -> None:
    """A separate worker is started with a secret, as a real worker has its API key."""
    secret = secrets.token_hex()
    worker = await asyncio.to_thread(
        subprocess.run,
        [sys.executable, "-c", _SPY, str(workspace)],
        env={"ANTHROPIC_API_KEY": secret, "PATH": "/usr/bin:/bin", "PYTHONPATH": str(ROOT)},
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    )
    assert "PATH=" in worker.stdout
    assert secret not in worker.stdout and "ANTHROPIC" not in worker.stdout


async def test_open_files_of_the_worker_are_not_passed_on(sandbox: Sandbox, workspace: Path, secret: Secret) -> None:
    fd = os.open(secret.path, os.O_RDONLY)
    os.set_inheritable(fd, True)
    try:
        result = await run(sandbox, workspace, f"readlink /proc/self/fd/*; cat <&{fd}")
        assert str(secret.path) not in result.output
        assert secret.text not in result.output
    finally:
        os.close(fd)


def list_arguments() -> bytes:
    """The arguments of all processes of this host."""
    found = b""
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        with contextlib.suppress(OSError):
            found += path.read_bytes()
    return found


async def test_variables_reach_the_command_and_no_list_of_processes(sandbox: Sandbox, workspace: Path) -> None:
    secret, listed = secrets.token_hex(), b""
    asked = run(sandbox, workspace, "sleep 2; echo $GIVEN", variables={"GIVEN": secret})
    running = asyncio.create_task(asked)
    while not running.done():
        listed += await asyncio.to_thread(list_arguments)
        await asyncio.sleep(0.2)
    assert secret in (await running).output
    assert b"sleep 2; echo $GIVEN" in listed and secret.encode() not in listed
