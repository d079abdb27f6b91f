"""The embedded stack's data directory, and the account that PostgreSQL runs as: it refuses to run as root."""

import hashlib
import os
import pwd
import subprocess
from dataclasses import dataclass
from pathlib import Path

from deploy.state import StackError
from settings import ROOT, Settings

SYSTEM_STATE = Path("/var/lib/errand")


@dataclass(frozen=True)
class Account:
    """An account without privileges that a process runs as."""

    name: str
    uid: int
    gid: int

    def can_reach(self, path: Path) -> bool:
        """Try it: file modes alone say nothing about access lists and mount options."""
        probe = ["test", "-x", str(path)]
        return subprocess.run(probe, user=self.uid, group=self.gid, extra_groups=[], cwd="/").returncode == 0


def postgres_account() -> Account | None:
    """The account `nobody` if we are root, since initdb wants one with a passwd entry; else None, our own."""
    if os.geteuid() != 0:
        return None
    try:
        entry = pwd.getpwnam("nobody")
    except KeyError:
        raise StackError("PostgreSQL does not run as root, and there is no account `nobody` to run it as") from None
    return Account(entry.pw_name, entry.pw_uid, entry.pw_gid)


def locate_data_dir(settings: Settings) -> Path:
    """ERRAND_DATA_DIR, else .errand/data in the checkout.

    As root, if PostgreSQL's account cannot reach the checkout: a folder in the system's own state directory.
    """
    if settings.data_dir:
        return settings.data_dir.absolute()
    default = ROOT / ".errand" / "data"
    account = postgres_account()
    if account is None or account.can_reach(_nearest_existing(default)):
        return default
    # one folder per checkout, or two checkouts would share their data
    return SYSTEM_STATE / hashlib.sha256(str(ROOT).encode()).hexdigest()[:12]


def create_data_dir(directory: Path, account: Account | None) -> None:
    """Create the folder and its parents: PostgreSQL's account may pass through them, nobody else may read them."""
    missing = [path for path in (directory, *directory.parents) if not path.exists()]
    try:
        for path in reversed(missing):
            path.mkdir(exist_ok=True)
            path.chmod(0o711 if account else 0o700)
    except OSError as error:
        raise StackError(
            f"cannot create {error.filename}: {error.strerror}; set ERRAND_DATA_DIR to another folder"
        ) from None
    if account and not account.can_reach(directory):
        raise StackError(
            f"PostgreSQL does not run as root, and the account that it runs as, {account.name}, cannot reach "
            f"{directory}; `chmod a+x` it and the folders above, or set ERRAND_DATA_DIR to another folder"
        )


def _nearest_existing(path: Path) -> Path:
    return next(candidate for candidate in (path, *path.parents) if candidate.exists())
