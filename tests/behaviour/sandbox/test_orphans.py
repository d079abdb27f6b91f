"""A bubblewrap that is killed while it starts leaves an init process behind; the next worker ends only that."""

import contextlib
import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from activities.sandbox.bubblewrap import bury_orphans, candidates

pytestmark = pytest.mark.skipif(sys.platform != "linux" or not candidates(), reason="needs bubblewrap")


def init_of(process: "subprocess.Popen[bytes]") -> int:
    """Return its child, which waits for its user mapping."""
    children = Path(f"/proc/{process.pid}/task/{process.pid}/children")
    give_up = time.monotonic() + 20
    while not (found := children.read_text().split()):
        assert time.monotonic() < give_up and process.poll() is None
        time.sleep(0.01)
    return int(found[0])


def lives(pid: int) -> bool:
    with contextlib.suppress(FileNotFoundError):
        return "\nState:\tZ" not in Path(f"/proc/{pid}/status").read_text()
    return False


@pytest.mark.proves("S1-25")
def test_only_orphaned_sandboxes_are_ended() -> None:
    blocked, keep = os.pipe()  # blocks both at the point where a kill leaves something behind
    flags = "--unshare-user --unshare-pid --unshare-uts --hostname sandbox --die-with-parent --ro-bind / /"
    pipes = ["--info-fd", "1", "--userns-block-fd", str(blocked)]
    argv = [str(candidates()[-1].program), *flags.split(), *pipes, "sleep", "60"]
    killed, living = [subprocess.Popen(argv, pass_fds=[blocked], stdout=subprocess.DEVNULL) for _ in range(2)]
    try:
        orphan, kept = init_of(killed), init_of(living)
        killed.kill()
        killed.wait()
        assert lives(orphan), "nothing was left behind: this test shows nothing"
        bury_orphans()
        time.sleep(0.1)
        assert not lives(orphan) and lives(kept) and living.poll() is None
    finally:
        for process in (killed, living):
            process.kill()
            process.wait()
        bury_orphans()
        os.close(blocked)
        os.close(keep)
