"""The system call filter of the sandbox, assembled as classic BPF for x86_64 and aarch64.

Namespaces already hide the host. The filter blocks what they do not cover (AF_VSOCK sockets; ptrace of the sandbox's
own pid 1, which can hang it) and the kernel interfaces that most past escapes used.
"""

import errno
import struct

# (x86_64, aarch64) numbers; None where the architecture has no such call.
_DENIED: dict[str, tuple[int, int | None]] = {
    "ptrace": (101, 117),
    "process_vm_readv": (310, 270),
    "process_vm_writev": (311, 271),
    "process_madvise": (440, 440),
    "pidfd_getfd": (438, 438),
    "kcmp": (312, 272),
    "mount": (165, 40),
    "umount2": (166, 39),
    "pivot_root": (155, 41),
    "chroot": (161, 51),
    "open_tree": (428, 428),
    "move_mount": (429, 429),
    "fsopen": (430, 430),
    "fsconfig": (431, 431),
    "fsmount": (432, 432),
    "fspick": (433, 433),
    "mount_setattr": (442, 442),
    "unshare": (272, 97),
    "setns": (308, 268),
    "add_key": (248, 217),
    "request_key": (249, 218),
    "keyctl": (250, 219),
    "bpf": (321, 280),
    "userfaultfd": (323, 282),
    "perf_event_open": (298, 241),
    "io_uring_setup": (425, 425),
    "io_uring_enter": (426, 426),
    "io_uring_register": (427, 427),
    "fanotify_init": (300, 262),
    "name_to_handle_at": (303, 264),
    "open_by_handle_at": (304, 265),
    "quotactl": (179, 60),
    "quotactl_fd": (443, 443),
    "syslog": (103, 116),
    "acct": (163, 89),
    "swapon": (167, 224),
    "swapoff": (168, 225),
    "reboot": (169, 142),
    "kexec_load": (246, 104),
    "kexec_file_load": (320, 294),
    "init_module": (175, 105),
    "finit_module": (313, 273),
    "delete_module": (176, 106),
    "settimeofday": (164, 170),
    "clock_settime": (227, 112),
    "clock_adjtime": (305, 266),
    "adjtimex": (159, 171),
    "sethostname": (170, 161),
    "setdomainname": (171, 162),
    "iopl": (172, None),
    "ioperm": (173, None),
    "modify_ldt": (154, None),
}

# Memory and disk that supervise.py could not see. Programs work without these calls. (numbers, error)
_UNMEASURABLE: dict[str, tuple[tuple[int, int], int]] = {
    "memfd_create": ((319, 279), errno.ENOSYS),
    "memfd_secret": ((447, 447), errno.ENOSYS),
    "fallocate": ((285, 47), errno.EOPNOTSUPP),
    "msgget": ((68, 186), errno.ENOSYS),
}
_SHMGET = (29, 194)
_SHARED_BYTES = 65_536  # per System V segment, which stays when unattached; PostgreSQL needs 56

_SEMGET = (64, 190)
_SEMAPHORES = 32  # per System V set, which stays as well; PostgreSQL needs 17
_SETSOCKOPT = (54, 208)
_SOL_SOCKET = 1
_BUFFER_SIZES = (7, 8, 32, 33)  # SO_SNDBUF, SO_RCVBUF and their FORCE forms

_SOCKET = (41, 198)
_CLONE = (56, 220)
_CLONE3 = (435, 435)
_IOCTL = (16, 29)
_AUDIT_ARCH = (0xC000003E, 0xC00000B7)
_X32_BIT = 0x40000000

_FAMILIES = (1, 2, 10, 16)  # AF_UNIX, AF_INET, AF_INET6, AF_NETLINK; above all not AF_VSOCK (40)
_NEW_NAMESPACES = 0x7E020080  # every CLONE_NEW* flag
_INJECTING_IOCTLS = (0x5412, 0x541C)  # TIOCSTI, TIOCLINUX: they inject input into a terminal

_LOAD, _JUMP_EQ, _JUMP_GE, _JUMP_SET, _RETURN = 0x20, 0x15, 0x35, 0x45, 0x06
_ALLOW, _KILL = 0x7FFF0000, 0x80000000
_NUMBER, _ARCH, _ARG0, _ARG1, _ARG2 = 0, 4, 16, 24, 32  # offsets in struct seccomp_data, little endian

MACHINES = ("x86_64", "aarch64")

Instruction = tuple[int, int, int, int]


def _fail(code: int) -> Instruction:
    return (_RETURN, 0, 0, 0x00050000 | code)


def _when_call(number: int, body: list[Instruction]) -> list[Instruction]:
    """Run `body`, which must return, if the call has this number."""
    return [(_JUMP_EQ, 0, len(body), number), *body]


def program(machine: str) -> bytes:
    """The filter for one of MACHINES, as bwrap reads it from a file descriptor."""
    which = MACHINES.index(machine)
    code: list[Instruction] = [
        (_LOAD, 0, 0, _ARCH),
        (_JUMP_EQ, 1, 0, _AUDIT_ARCH[which]),
        (_RETURN, 0, 0, _KILL),  # a foreign call table would make every number below mean something else
        (_LOAD, 0, 0, _NUMBER),
    ]
    if machine == "x86_64":
        code += [(_JUMP_GE, 0, 1, _X32_BIT), _fail(errno.ENOSYS)]
    for numbers in _DENIED.values():
        number = numbers[which]
        if number is not None:
            code += _when_call(number, [_fail(errno.EPERM)])
    for numbers, error in _UNMEASURABLE.values():
        code += _when_call(numbers[which], [_fail(error)])
    code += _when_call(_SHMGET[which], _at_most(_SHARED_BYTES, _ARG1, errno.ENOMEM))
    code += _when_call(_SEMGET[which], _at_most(_SEMAPHORES, _ARG1, errno.ENOSPC))
    # A buffer size is only advice: the call succeeds, and the buffer keeps the size that supervise.py counts.
    keeps = _none_of(_BUFFER_SIZES, _ARG2, 0)
    code += _when_call(
        _SETSOCKOPT[which],
        [(_LOAD, 0, 0, _ARG1), (_JUMP_EQ, 1, 0, _SOL_SOCKET), (_RETURN, 0, 0, _ALLOW), *keeps],
    )
    # Its flags are in memory, where a filter cannot read them. The C library falls back to clone.
    code += _when_call(_CLONE3[which], [_fail(errno.ENOSYS)])
    code += _when_call(
        _CLONE[which],
        [(_LOAD, 0, 0, _ARG0), (_JUMP_SET, 0, 1, _NEW_NAMESPACES), _fail(errno.EPERM), (_RETURN, 0, 0, _ALLOW)],
    )
    code += _when_call(_SOCKET[which], _only(_FAMILIES, _ARG0, errno.EAFNOSUPPORT))
    code += _when_call(_IOCTL[which], _none_of(_INJECTING_IOCTLS, _ARG1, errno.EPERM))
    code.append((_RETURN, 0, 0, _ALLOW))
    return b"".join(struct.pack("<HBBI", *instruction) for instruction in code)


def _at_most(value: int, offset: int, code: int) -> list[Instruction]:
    """Compare an argument, which has 64 bits while a comparison has 32: the upper half must be zero."""
    upper = [(_LOAD, 0, 0, offset + 4), (_JUMP_EQ, 0, 2, 0)]
    lower = [(_LOAD, 0, 0, offset), (_JUMP_GE, 0, 1, value + 1)]
    return [*upper, *lower, _fail(code), (_RETURN, 0, 0, _ALLOW)]


def _only(values: tuple[int, ...], offset: int, code: int) -> list[Instruction]:
    tests = [(_JUMP_EQ, len(values) - at, 0, value) for at, value in enumerate(values)]
    return [(_LOAD, 0, 0, offset), *tests, _fail(code), (_RETURN, 0, 0, _ALLOW)]


def _none_of(values: tuple[int, ...], offset: int, code: int) -> list[Instruction]:
    tests = [(_JUMP_EQ, len(values) - at, 0, value) for at, value in enumerate(values)]
    return [(_LOAD, 0, 0, offset), *tests, (_RETURN, 0, 0, _ALLOW), _fail(code)]
