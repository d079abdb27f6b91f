"""Opens a listening socket inside the network namespace of a sandbox and passes it to the worker.

It runs as a script with `python -I -S`, so it imports the standard library only. It is a separate process because a
process with threads cannot enter a user namespace. The socket stays in the sandbox's network: a command connects to its
own loopback, the worker accepts, and no process inside has to forward anything.
"""

import ctypes
import fcntl
import os
import socket
import sys

ADDRESS = ("127.0.0.1", 3128)

_NS_GET_USERNS = 0xB701
_IP_FREEBIND = 15
_PR_SET_DUMPABLE = 4
_BACKLOG = 64


def main() -> None:
    pid, uid, channel = (int(word) for word in sys.argv[1:])
    libc = ctypes.CDLL(None, use_errno=True)
    if uid >= 0:  # the sandbox's user owns the namespaces; root in a container may have no right to enter them
        os.setgroups([])
        os.setresgid(uid, uid, uid)
        os.setresuid(uid, uid, uid)
        libc.prctl(_PR_SET_DUMPABLE, 1, 0, 0, 0)  # lost with the change of user, and /proc cannot be read without it
    network = os.open(f"/proc/{pid}/ns/net", os.O_RDONLY | os.O_CLOEXEC)
    owner = fcntl.ioctl(network, _NS_GET_USERNS)
    for namespace in (owner, network):
        if libc.setns(namespace, 0) != 0:
            code = ctypes.get_errno()
            raise OSError(code, f"setns: {os.strerror(code)}")
    with socket.socket() as listener, socket.socket(fileno=channel) as worker:
        listener.setsockopt(socket.IPPROTO_IP, _IP_FREEBIND, 1)  # the interface may not be up yet
        listener.bind(ADDRESS)
        listener.listen(_BACKLOG)
        socket.send_fds(worker, [b"."], [listener.fileno()])


if __name__ == "__main__":
    main()
