"""The embedded stack's data directory, and the account for PostgreSQL, which refuses to run as root."""

import contextlib
import hashlib
import os
import pwd
import secrets
import subprocess
import time
from dataclasses import dataclass
from pathlib import Path

from deploy.state import StackError
from settings import INSTALLED, ROOT, STATE_FOLDER, Settings

SYSTEM_STATE = Path("/var/lib/errand")
POSTGRES_ACCOUNT = "errand-postgres"
CREATE_ACCOUNT = ["useradd", "--system", "--user-group", "--no-create-home", "--home-dir", "/nonexistent"]
CREATE_ACCOUNT += ["--shell", "/usr/sbin/nologin", POSTGRES_ACCOUNT]
PROGRAMS = {"PATH": "/usr/sbin:/usr/bin:/sbin:/bin"}  # `su` and some process managers leave the first out of PATH


@dataclass(frozen=True)
class Account:
    """An unprivileged account for a process."""

    name: str
    uid: int
    gid: int

    def can_reach(self, path: Path) -> bool:
        """Try to access it: file modes alone do not show access lists and mount options."""
        probe = ["test", "-x", str(path)]
        return subprocess.run(probe, user=self.uid, group=self.gid, extra_groups=[], cwd="/").returncode == 0


UNPRIVILEGED = Account("nobody", 65_534, 65_534)  # for testing what everybody can reach, without making an account


def postgres_account() -> Account | None:
    """PostgreSQL's own account if we are root, made at the first use; else None, because it runs as we do.

    It is not `nobody`, which other programs share: they could read the database's files. initdb needs a passwd entry.
    """
    if os.geteuid() != 0:
        return None
    failure = ""
    for attempt in range(3):  # another stack may be making it at the same time
        with contextlib.suppress(KeyError):
            entry = pwd.getpwnam(POSTGRES_ACCOUNT)
            return Account(entry.pw_name, entry.pw_uid, entry.pw_gid)
        time.sleep(attempt)
        failure = _create_account()
    raise StackError(
        f"PostgreSQL does not run as root, and its account {POSTGRES_ACCOUNT} could not be made ({failure}); make it "
        f"with `{' '.join(CREATE_ACCOUNT)}`, or start the stack as another user"
    )


def _create_account() -> str:
    """Create the account; returns the error, or an empty text."""
    try:
        made = subprocess.run(CREATE_ACCOUNT, env=PROGRAMS, capture_output=True, text=True, timeout=30)
    except (OSError, subprocess.TimeoutExpired) as error:
        return str(error)
    return made.stderr.strip() or f"exit code {made.returncode}" if made.returncode else ""


def locate_data_dir(settings: Settings) -> Path:
    """ERRAND_DATA_DIR, else .errand/data in the checkout, or errand/data in the user's data folder if installed.

    As root, if PostgreSQL's account cannot reach that: a folder in the system's state directory.
    """
    if settings.data_dir:
        return settings.data_dir.absolute()
    default = STATE_FOLDER / "data"
    existing = next(path for path in (default, *default.parents) if path.exists())
    if os.geteuid() != 0 or UNPRIVILEGED.can_reach(existing):
        return default
    # one folder per checkout, so that two checkouts do not share their data
    return SYSTEM_STATE / hashlib.sha256(str(STATE_FOLDER if INSTALLED else ROOT).encode()).hexdigest()[:12]


def create_data_dir(directory: Path, account: Account | None) -> None:
    """Create the folder and its parents. PostgreSQL's account may pass through them, but nobody else may read them."""
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


def secret_in(path: Path) -> str:
    """The secret in a file that only its owner can read; created at the first call."""
    try:
        with open(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as file:
            file.write(secrets.token_urlsafe(32))
    except FileExistsError:
        pass
    if found := path.read_text().strip():
        return found
    path.unlink()  # incomplete: its first writer was killed, or the disk was full
    return secret_in(path)


def token_file(home: Path) -> Path:
    """The token that opens the API on loopback for accounts other than the stack's own."""
    return home / "token"


def ui_access_file(home: Path) -> Path:
    """The secret in the link to the Temporal Web UI."""
    return home / "temporal-ui.access"
