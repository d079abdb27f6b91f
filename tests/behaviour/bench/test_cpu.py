"""CPU time covers a whole tree of processes, including those that have ended."""

import os
import subprocess
import sys

import pytest

from bench import cpu

BURN = "import time\nend = time.process_time() + 0.3\nwhile time.process_time() < end: pass\n"
pytestmark = pytest.mark.skipif(not cpu.measurable(), reason="there is no /proc here")


def test_a_child_that_lives_is_counted() -> None:
    before = cpu.seconds([os.getpid()])
    script = BURN + "print(flush=True)\ninput()"
    with subprocess.Popen([sys.executable, "-c", script], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as child:
        assert child.stdout is not None
        child.stdout.readline()
        assert cpu.seconds([os.getpid()]) - before >= 0.25  # the child uses 0.3 s; the system counts in hundredths
        assert cpu.seconds([child.pid]) >= 0.25
        child.communicate(b"\n")
