"""Where the embedded stack keeps its data, and as whom PostgreSQL runs: it refuses to run as root."""

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
    """The account that a process is dropped to."""

    name: str
    uid: int
    gid: int

    def reaches(self, path: Path) -> bool:
        """Tried, not computed: access lists and mount options count too."""
        probe = ["test", "-x", str(path)]
        return subprocess.run(probe, user=self.uid, group=self.gid, extra_groups=[], cwd="/").returncode == 0


def account() -> Account | None:
    """None: no need to drop. Else `nobody`, since initdb wants an account with a passwd entry."""
    if os.geteuid() != 0:
        return None
    try:
        entry = pwd.getpwnam("nobody")
    except KeyError:
        raise StackError("PostgreSQL does not run as root, and there is no account `nobody` to drop to") from None
    return Account(entry.pw_name, entry.pw_uid, entry.pw_gid)


def data_dir(settings: Settings) -> Path:
    """ERRAND_DATA_DIR, else .errand/data in the checkout, else (root, and it is closed to others) the system's own."""
    if settings.data_dir:
        return settings.data_dir.absolute()
    default = ROOT / ".errand" / "data"
    dropped = account()
    if dropped is None or dropped.reaches(_nearest(default)):
        return default
    # one folder per checkout, or two of them would share their data
    return SYSTEM_STATE / hashlib.sha256(str(ROOT).encode()).hexdigest()[:12]


def make(directory: Path, dropped: Account | None) -> None:
    """Create the folder and its parents: passable for the dropped account, readable for none but us."""
    missing = [path for path in (directory, *directory.parents) if not path.exists()]
    try:
        for path in reversed(missing):
            path.mkdir(exist_ok=True)
            path.chmod(0o711 if dropped else 0o700)
    except OSError as error:
        raise StackError(
            f"cannot create {error.filename}: {error.strerror}; set ERRAND_DATA_DIR to another folder"
        ) from None
    if dropped and not dropped.reaches(directory):
        raise StackError(
            f"PostgreSQL does not run as root, and the account that it is dropped to, {dropped.name}, cannot reach "
            f"{directory}; `chmod a+x` it and the folders above, or set ERRAND_DATA_DIR to another folder"
        )


def _nearest(path: Path) -> Path:
    return next(candidate for candidate in (path, *path.parents) if candidate.exists())
