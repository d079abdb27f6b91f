"""The seccomp filter as the kernel would run it, in a small interpreter of its instructions."""

import errno
import struct

import pytest

from activities.sandbox.seccomp import MACHINES, program

ARCH = {"x86_64": 0xC000003E, "aarch64": 0xC00000B7}
ALLOW, KILL = 0x7FFF0000, 0x80000000


def judge(machine: str, number: int, *arguments: int, arch: int | None = None) -> int:
    data = struct.pack("<IIQ6Q", number, arch or ARCH[machine], 0, *arguments, *[0] * (6 - len(arguments)))
    code = [struct.unpack_from("<HBBI", program(machine), at) for at in range(0, len(program(machine)), 8)]
    at = accumulator = 0
    while True:
        operation, if_true, if_false, value = code[at]
        at += 1
        if operation == 0x20:
            (accumulator,) = struct.unpack_from("<I", data, value)
        elif operation == 0x06:
            return int(value)
        else:
            test = {0x15: accumulator == value, 0x35: accumulator >= value, 0x45: bool(accumulator & value)}[operation]
            at += if_true if test else if_false


def error(code: int) -> int:
    return 0x00050000 | code


CALLS = {  # call numbers on x86_64 and aarch64
    "read": (0, 63),
    "openat": (257, 56),
    "execve": (59, 221),
    "ptrace": (101, 117),
    "mount": (165, 40),
    "bpf": (321, 280),
    "keyctl": (250, 219),
    "userfaultfd": (323, 282),
    "perf_event_open": (298, 241),
    "io_uring_setup": (425, 425),
    "unshare": (272, 97),
    "setns": (308, 268),
    "socket": (41, 198),
    "clone": (56, 220),
    "clone3": (435, 435),
    "ioctl": (16, 29),
}


@pytest.mark.parametrize("machine", MACHINES)
def test_filter_gives_each_call_its_verdict(machine: str) -> None:
    def verdict(name: str, *arguments: int) -> int:
        return judge(machine, CALLS[name][MACHINES.index(machine)], *arguments)

    for name in ("read", "openat", "execve"):
        assert verdict(name) == ALLOW
    for name in (
        "ptrace",
        "mount",
        "bpf",
        "keyctl",
        "userfaultfd",
        "perf_event_open",
        "io_uring_setup",
        "unshare",
        "setns",
    ):
        assert verdict(name) == error(errno.EPERM), name
    for family in (1, 2, 10, 16):
        assert verdict("socket", family) == ALLOW
    for family in (0, 17, 38, 40, 44):
        assert verdict("socket", family) == error(errno.EAFNOSUPPORT)
    assert verdict("clone", 0x11) == ALLOW
    assert verdict("clone", 0x003D0F00) == ALLOW  # the flags that create a thread
    for flag in (0x00020000, 0x02000000, 0x04000000, 0x08000000, 0x10000000, 0x20000000, 0x40000000):
        assert verdict("clone", flag | 0x11) == error(errno.EPERM)
    assert verdict("clone3") == error(errno.ENOSYS)
    assert verdict("ioctl", 0, 0x5401) == ALLOW
    assert verdict("ioctl", 0, 0x5412) == error(errno.EPERM)
    assert judge(machine, 0, arch=0x40000003) == KILL


def test_the_second_call_table_of_x86_64_is_closed() -> None:
    assert judge("x86_64", 0x40000000 | 101) == error(errno.ENOSYS)
