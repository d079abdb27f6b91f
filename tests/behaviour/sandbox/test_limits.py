"""The limits of a command. However it ends, none of its processes is left."""

import asyncio
import os
import secrets
import tempfile
import time
from pathlib import Path

import pytest

from activities.sandbox import Sandbox, SandboxLimits, bubblewrap

from .test_confinement import run


def survivors(marker: str) -> list[int]:
    found = []
    for pid in filter(str.isdigit, os.listdir("/proc")):
        try:
            if marker.encode() in Path(f"/proc/{pid}/cmdline").read_bytes():
                found.append(int(pid))
        except OSError:
            continue
    return [pid for pid in found if pid != os.getpid()]


@pytest.fixture
def marker() -> str:
    # a number of seconds to sleep that only this test uses
    return f"{secrets.randbelow(10**6)}.{secrets.randbelow(10**9)}"


BACKGROUND = "sleep {0} & sleep {0} >/dev/null 2>&1 & "
DAEMON = "(setsid setsid sleep {0} </dev/null >/dev/null 2>&1 &) ; python3 -c '{1}' ; "
DOUBLE_FORK = (
    "import os\nif os.fork() == 0:\n os.setsid()\n if os.fork() == 0:\n  "
    'os.execlp("sleep", "sleep", "{0}")\n os._exit(0)'
)


def wait_for(path: Path) -> None:
    while not path.exists():
        time.sleep(0.02)


def leaving(marker: str) -> str:
    fork = DOUBLE_FORK.format(marker)
    return BACKGROUND.format(marker) + DAEMON.format(marker, fork) + "sleep 0.2; trap '' TERM HUP INT; "


@pytest.mark.proves("S1-64")
async def test_ended_command_leaves_no_process(sandbox: Sandbox, workspace: Path, marker: str) -> None:
    began = time.monotonic()
    result = await run(sandbox, workspace, leaving(marker) + "echo done")
    assert (result.exit_code, result.output) == (0, "done\n")
    assert survivors(marker) == []
    assert time.monotonic() - began < 10


async def test_command_that_takes_too_long_leaves_no_process(sandbox: Sandbox, workspace: Path, marker: str) -> None:
    began = time.monotonic()
    result = await run(sandbox, workspace, leaving(marker) + "echo begun; while true; do sleep 1; done", timeout_s=2.0)
    assert (result.exit_code, result.timed_out) == (None, True)
    assert result.output == "begun\n"
    assert time.monotonic() - began < 8
    assert survivors(marker) == []


async def test_cancelled_command_leaves_no_process(sandbox: Sandbox, workspace: Path, marker: str) -> None:
    running = asyncio.create_task(run(sandbox, workspace, leaving(marker) + "touch begun; sleep " + marker))
    await asyncio.to_thread(wait_for, workspace / "begun")
    began = time.monotonic()
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running
    assert time.monotonic() - began < 3
    assert survivors(marker) == []


@pytest.mark.parametrize("delay", [0.0, 0.005, 0.02, 0.05, 0.1])
async def test_a_command_cancelled_while_it_starts_leaves_nothing(
    sandbox: Sandbox, workspace: Path, marker: str, delay: float
) -> None:
    running = asyncio.create_task(run(sandbox, workspace, f"sleep {marker}"))
    await asyncio.sleep(delay)
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running
    assert survivors(marker) == []


async def test_fork_bomb_is_limited(sandbox: Sandbox, workspace: Path, marker: str) -> None:
    """At most 200 processes: if the limit fails, the test must not harm the host."""
    limits = SandboxLimits(processes=40)
    command = f"for i in $(seq 200); do sleep {marker} & done 2>/dev/null; sleep {marker}"
    running = asyncio.create_task(run(sandbox, workspace, command, timeout_s=8.0, limits=limits))
    most = 0
    while not running.done():
        most = max(most, len(survivors(marker)))
        await asyncio.sleep(0.05)
    result = await running
    assert most <= 108  # the kernel's limit is a little higher, and some processes belong to the back end
    assert survivors(marker) == []
    if sandbox.name.startswith("bwrap"):
        assert result.stopped == "it ran more than 40 processes and threads at a time", result
        assert (result.exit_code, result.timed_out) == (None, False)


async def test_many_small_processes_that_use_much_memory_together_are_stopped(
    sandbox: Sandbox, workspace: Path, marker: str
) -> None:
    """Half of the processes left their parents: the other half alone would be below the limit."""
    limits = SandboxLimits(memory_bytes=400 * 1024**2)
    code = f"import sys, time; x = bytearray(55 * 1024**2); open(sys.argv[1], chr(119)); time.sleep({marker})"
    hogs = [f"python3 -c '{code}' got-{number}" for number in range(12)]
    command = "\n".join([*(f"{hog} &" for hog in hogs[:6]), *(f"(setsid setsid {hog} >&- 2>&- &)" for hog in hogs[6:])])
    result = await run(sandbox, workspace, f"{command}\nsleep {marker}", timeout_s=8.0, limits=limits)
    if sandbox.name.startswith("bwrap"):
        assert result.stopped == "its processes together used more than 400 MiB of memory"
    else:  # sandlock refuses more memory to each process, and the others keep theirs
        assert 0 < sum(name.startswith("got-") for name in os.listdir(workspace)) <= 7, result
    assert survivors(marker) == []


async def test_memory_that_processes_share_counts_once(workspace: Path) -> None:
    """Eight forks of a process with 100 MiB would be 900 MiB if shared memory were counted for each process."""
    limits = SandboxLimits(memory_bytes=500 * 1024**2)
    code = "import os, time; x = b'x' * (100 * 1024**2); [os.fork() or (time.sleep(1), os._exit(0)) for _ in range(8)]"
    for back_end in bubblewrap.candidates():
        result = await run(back_end, workspace, f'python3 -c "{code}; time.sleep(1.2); print(1)"', limits=limits)
        assert (result.exit_code, result.output, result.stopped) == (0, "1\n", "")


@pytest.mark.parametrize("where", [".", "/dev/shm"])
async def test_output_of_a_command_on_disk_is_bounded_as_a_whole(workspace: Path, where: str) -> None:
    """Many files that are each within the limit, and files that are deleted while they are open."""
    limits = SandboxLimits(disk_bytes=50_000_000, file_bytes=20_000_000, tmp_bytes=20_000_000)
    fill = f"for i in $(seq 40); do head -c 10000000 /dev/zero > {where}/$i || exit 9; sleep 0.1; done; echo ALL"
    for back_end in bubblewrap.candidates():
        result = await run(back_end, workspace, fill, limits=limits)
        assert "ALL" not in result.output
        if where == ".":
            assert result.stopped == "its workspace grew beyond 48 MiB"
            assert sum(os.stat(workspace / name).st_size for name in os.listdir(workspace)) < 300_000_000
        else:
            assert result.exit_code == 9


async def test_deleted_files_that_stay_open_are_counted_by_what_was_written() -> None:
    """On a disk: the kernel counts nothing that is written to memory."""
    limits = SandboxLimits(disk_bytes=10_000_000)
    code = "import os, time\nfor i in range(40):\n f = open('x', 'wb'); os.unlink('x'); f.write(b'x' * 5_000_000)\n"
    code += " f.flush(); globals()[f'f{i}'] = f; time.sleep(0.05)\nprint('ALL')"
    with tempfile.TemporaryDirectory(dir="/var/tmp") as workspace:
        (Path(workspace) / "hide.py").write_text(code)
        for back_end in bubblewrap.candidates():
            result = await run(back_end, Path(workspace), "python3 hide.py", limits=limits)
            assert result.stopped == "it wrote more than 76 MiB to disk", result


async def test_very_many_files_are_stopped(workspace: Path) -> None:
    limits = SandboxLimits(files=2_000)
    code = "import time\nfor i in range(20_000):\n open(str(i), 'w').close()\n if i % 500 == 0: time.sleep(0.1)"
    (workspace / "many.py").write_text(code)
    for back_end in bubblewrap.candidates():
        result = await run(back_end, workspace, "python3 many.py", limits=limits)
        assert result.stopped == "its workspace grew beyond 2,000 files", result


async def test_memory_that_belongs_to_no_process_is_not_available(workspace: Path) -> None:
    """Anonymous files, large System V segments and sets of semaphores use memory that belongs to no process."""
    shmget, semget = (f"ctypes.CDLL(None).{call}(0, {{}}, 0o1666)" for call in ("shmget", "semget"))
    held = ("os.memfd_create('x')", "os.posix_fallocate(1, 0, 1)", "ctypes.CDLL(None).msgget(0, 0o1666)")
    for back_end in bubblewrap.candidates():
        for code in (*held, shmget.format(1 << 20), semget.format(32_000)):
            command = f"python3 -c 'import os, ctypes, sys; sys.exit({code} == -1)'".replace("'x'", '"x"')
            assert (await run(back_end, workspace, command)).exit_code != 0, code
        small = f"python3 -c 'import ctypes, sys; sys.exit(min({shmget.format(100)}, {semget.format(17)}) < 0)'"
        assert (await run(back_end, workspace, small)).exit_code == 0  # PostgreSQL needs a segment of this size


async def test_memory_in_the_buffers_of_sockets_is_bounded(workspace: Path) -> None:
    limits = SandboxLimits(memory_bytes=100 * 1024**2)
    wide = "a, b = socket.socketpair(); a.setsockopt(1, 7, 4_000_000); print(a.getsockopt(1, 7))"
    many = "x = [socket.socketpair() for _ in range(300)]; time.sleep(8)"
    for back_end in bubblewrap.candidates():
        result = await run(back_end, workspace, f'python3 -c "import socket; {wide}"', limits=limits)
        assert (result.exit_code, int(result.output) <= 212_992) == (0, True), result
        result = await run(back_end, workspace, f'python3 -c "import socket, time; {many}"', limits=limits)
        assert result.stopped == "its sockets together may hold more than 100 MiB of memory", result


@pytest.mark.parametrize("place", ["tmp", "dev/shm"])
async def test_very_many_empty_files_in_memory_are_stopped(workspace: Path, place: str) -> None:
    code = "for i in range(20_000):\n open(f'{i}', 'w').close()\n if i % 500 == 0: time.sleep(0.1)"
    (workspace / "many.py").write_text(f"import os, time\nos.chdir('/{place}')\n{code}")
    for back_end in bubblewrap.candidates():
        result = await run(back_end, workspace, "python3 many.py", limits=SandboxLimits(files=2_000))
        assert result.stopped == f"it made more than 2,000 files in /{place}", result


async def test_memory_of_one_process_is_limited(sandbox: Sandbox, workspace: Path) -> None:
    limits = SandboxLimits(memory_bytes=300 * 1024**2)
    command = "python3 -c 'x = bytearray(600 * 1024**2); print(\"HELD\", len(x))'"
    result = await run(sandbox, workspace, command, limits=limits)
    assert result.exit_code != 0
    assert "HELD" not in result.output
    shared = (
        'python3 -c \'import mmap; m = mmap.mmap(-1, 600 * 1024**2); m.write(b"x" * (500 * 1024**2)); print("HELD")\''
    )
    result = await run(sandbox, workspace, shared, limits=limits)
    assert "HELD" not in result.output


async def test_endless_output_is_bounded_and_ends(sandbox: Sandbox, workspace: Path) -> None:
    limits = SandboxLimits(output_bytes=10_000, flood_bytes=5_000_000)
    result = await run(sandbox, workspace, "echo first; yes", limits=limits)
    assert (result.exit_code, result.truncated, result.timed_out) == (None, True, False)
    assert result.output.startswith("first\ny\n")
    assert "bytes of output left out" in result.output
    assert len(result.output) < 11_000


async def test_long_output_keeps_its_end(sandbox: Sandbox, workspace: Path) -> None:
    result = await run(sandbox, workspace, "seq 100000; echo last", limits=SandboxLimits(output_bytes=10_000))
    assert (result.exit_code, result.truncated) == (0, True)
    assert result.output.startswith("1\n2\n") and result.output.endswith("100000\nlast\n")


async def test_cpu_time_and_file_size_are_limited(workspace: Path, sandbox: Sandbox) -> None:
    limits = SandboxLimits(cpu_s=1, file_bytes=1_000_000)
    result = await run(sandbox, workspace, "while true; do :; done", limits=limits)
    assert result.exit_code in (137, -9, 152)
    result = await run(sandbox, workspace, "head -c 5000000 /dev/zero > large", limits=limits)
    assert result.exit_code != 0 and (workspace / "large").stat().st_size <= 1_000_000


@pytest.mark.parametrize("place", ["/tmp", "/dev/shm"])
async def test_scratch_space_is_limited(workspace: Path, place: str) -> None:
    command = f"for i in 1 2 3; do head -c 900000 /dev/zero > {place}/$i || exit 9; done"
    for back_end in bubblewrap.candidates():
        assert (await run(back_end, workspace, command)).exit_code == 0
        assert (await run(back_end, workspace, command, limits=SandboxLimits(tmp_bytes=1_000_000))).exit_code == 9
