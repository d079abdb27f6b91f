"""A worker that is root gives the workspace to the sandbox's user; its own file tools reach everything anyway."""

import asyncio
import os
import pwd
from pathlib import Path


async def user_for(workspace: Path) -> int | None:
    """Whom a command runs as, to whom the workspace is handed; None: ourselves, who are no root."""
    if os.geteuid() != 0:
        return None
    uid = unused_uid()
    await asyncio.to_thread(adopt, workspace, uid)
    return uid


def unused_uid() -> int:
    """For a worker that is root: the kernel holds root to no process limit, so commands run as nobody we know."""
    taken = {entry.pw_uid for entry in pwd.getpwall()}
    return next(uid for uid in range(64_990, 60_000, -1) if uid not in taken)


def adopt(workspace: Path, uid: int) -> None:
    """Hand root's files and directories below `workspace` to `uid`. Walks by directory descriptors and never through a
    link; a file with several names may be somebody else's too (a local git clone shares its objects) and is left."""
    for _, folders, files, here in os.fwalk(workspace, follow_symlinks=False):
        if os.fstat(here).st_uid != uid:
            os.fchown(here, uid, uid)
        for name in (*folders, *files):
            try:
                found = os.stat(name, dir_fd=here, follow_symlinks=False)
                if found.st_uid == 0 and (found.st_nlink == 1 or name in folders):
                    os.chown(name, uid, uid, dir_fd=here, follow_symlinks=False)
            except FileNotFoundError:
                continue  # a command still running in this workspace removed it
