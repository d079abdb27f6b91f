"""Ownership of the workspace: a worker that is root gives it to the sandbox's user. Its own file tools still reach
it."""

import asyncio
import os
import pwd
from pathlib import Path


async def user_for(workspace: Path) -> int | None:
    """The user id that a command runs as and that gets the workspace; None if the worker is not root and runs it
    itself."""
    if os.geteuid() != 0:
        return None
    uid = unused_uid()
    await asyncio.to_thread(adopt, workspace, uid)
    return uid


def unused_uid() -> int:
    """The user for the commands of a root worker. The kernel does not limit root's processes, so an unused user is
    needed."""
    taken = {entry.pw_uid for entry in pwd.getpwall()}
    return next(uid for uid in range(64_990, 60_000, -1) if uid not in taken)


def adopt(workspace: Path, uid: int) -> None:
    """Give root's files and directories below `workspace` to `uid`. It walks by directory descriptors and never follows
    a link. A file with several names may also belong elsewhere (a local git clone shares its objects) and is left
    alone."""
    for _, folders, files, here in os.fwalk(workspace, follow_symlinks=False):
        if os.fstat(here).st_uid != uid:
            os.fchown(here, uid, uid)
        for name in (*folders, *files):
            try:
                found = os.stat(name, dir_fd=here, follow_symlinks=False)
                if found.st_uid == 0 and (found.st_nlink == 1 or name in folders):
                    os.chown(name, uid, uid, dir_fd=here, follow_symlinks=False)
            except FileNotFoundError:
                continue  # a command that still runs in this workspace removed it
