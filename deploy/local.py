"""The embedded stack for the command line: up, start_detached, down, status."""

import asyncio
import contextlib
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial

import click

from deploy import state
from deploy.child import answers, enter, rotate, tail
from deploy.data_dir import create_data_dir, locate_data_dir, postgres_account, secret_in, token_file
from deploy.postgres import Postgres
from deploy.stack import Ports, Stack, make_plan, mask_setting, variables
from deploy.state import StackError, StackInfo
from settings import ROOT, Settings, SettingsError

READY_WITHIN = 180.0
STOPPED_WITHIN = 30.0
PORTS = "ports.json"  # in the data directory: what each part listens on
SECRET_KEY = "secret-key"  # in the data directory: encrypts secrets in the embedded PostgreSQL


async def up(
    settings: Settings,
    *,
    on_ready: Callable[[StackInfo], None],
    log: Callable[[str], None],
    on_stop: Callable[[], None] = lambda: None,
) -> None:
    """Run the stack until SIGINT, SIGTERM, SIGHUP or cancellation; a second signal kills it."""
    try:
        home = locate_data_dir(settings)
        started_with = {name: mask_setting(name, text) for name, text in variables(settings).items()}
        create_data_dir(home, postgres_account())
        with state.lock(home), Ports(log, home / PORTS) as ports:
            if left := state.read(home):
                await asyncio.to_thread(state.end_leftovers, left)
            if settings.workspaces_dir == Settings.workspaces_dir:  # not configured: one directory holds everything
                settings = replace(settings, workspaces_dir=home / "workspaces")
            settings = replace(settings, local_token=settings.local_token or secret_in(token_file(home)))
            if settings.database_url is None and not settings.secret_keys:
                settings = replace(settings, secret_keys=(_embedded_key(secret_in(home / SECRET_KEY)),))
            settings.workspaces_dir.mkdir(mode=0o700, parents=True, exist_ok=True)
            plan = make_plan(settings, ports)
            ports.keep()
            stack = Stack(plan, home, started_with=started_with, moved=ports.moved, log=log)
            try:
                with _signals(stack) as stop:
                    try:
                        await stack.supervisor.until(_run_until(stop, stack, on_ready, on_stop))
                    finally:
                        await stack.supervisor.stop()
            finally:
                state.remove(home)
    except OSError as error:
        raise StackError(state.describe(error)) from error


async def _run_until(
    stop: asyncio.Event, stack: Stack, on_ready: Callable[[StackInfo], None], on_stop: Callable[[], None]
) -> None:
    stopped = asyncio.create_task(stop.wait())
    booted = asyncio.create_task(stack.boot())
    try:
        await asyncio.wait({booted, stopped}, return_when=asyncio.FIRST_COMPLETED)
        if not stop.is_set():
            booted.result()
            on_ready(stack.info())
            await stopped
            on_stop()
    finally:
        for task in (booted, stopped):
            task.cancel()
        await asyncio.gather(booted, stopped, return_exceptions=True)


@contextlib.contextmanager
def _signals(stack: Stack) -> Iterator[asyncio.Event]:
    """Set the event at the first signal, and kill everything at the second."""
    loop, stop = asyncio.get_running_loop(), asyncio.Event()
    handled = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)

    def handle() -> None:
        if stop.is_set():
            stack.supervisor.kill()
        stop.set()

    for number in handled:
        loop.add_signal_handler(number, handle)
    try:
        yield stop
    finally:
        for number in handled:
            loop.remove_signal_handler(number)


def secret_keys(settings: Settings) -> tuple[str, ...]:
    """The keys of the settings, else the key that the embedded stack made, if the caller may read it."""
    if settings.secret_keys:
        return settings.secret_keys
    try:
        return (_embedded_key((locate_data_dir(settings) / SECRET_KEY).read_text().strip()),)
    except OSError:
        return ()


def _embedded_key(text: str) -> str:
    return f"embedded:{text}"


def start_detached(settings: Settings) -> StackInfo:
    """Run `up` in the background, with its output in a log file, and return once the stack is ready."""
    home = locate_data_dir(settings)
    create_data_dir(home, postgres_account())
    if state.running(home):
        raise state.already_running(home)
    (home / "logs").mkdir(mode=0o700, exist_ok=True)
    log = home / "logs" / "stack.log"
    rotate(log)
    with log.open("ab") as output:
        process = subprocess.Popen(
            [sys.executable, "-m", "deploy.local"],
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            cwd=ROOT,
            start_new_session=True,
            preexec_fn=partial(enter, variables(settings) | {"PYTHONPATH": str(ROOT)}, None, signal.SIGKILL),
        )
    deadline = time.monotonic() + READY_WITHIN
    try:
        while process.poll() is None and time.monotonic() < deadline:
            info = status(settings)
            if info and info.pid == process.pid and info.ready:
                process.returncode = 0  # it outlives us, and Popen must not warn about that
                return info
            time.sleep(0.1)
    except KeyboardInterrupt:
        process.terminate()
        raise
    if process.poll() is None:
        process.terminate()
        process.wait()
    raise StackError(f"the stack did not start. Its log, {log}, ends:\n{tail(log, 25)}")


def down(settings: Settings) -> bool:
    """Stop the running stack and wait until it has ended; False if none was running."""
    home = locate_data_dir(settings)
    info = state.running(home)
    if info and info.started:
        try:
            state.end_process(info.pid, started=info.started, first=signal.SIGTERM, patience=STOPPED_WITHIN)
        except PermissionError:
            raise StackError(f"the stack (pid {info.pid}) belongs to another account, which must stop it") from None
    if left := state.read(home):  # its supervisor was killed, so stop what it left
        state.end_leftovers(left)
        state.remove(home)
    return info is not None


def status(settings: Settings) -> StackInfo | None:
    """The running stack with each part's current health; None if no stack is running."""
    info = state.running(locate_data_dir(settings))
    for part in info.parts if info else ():
        alive = part.pid is not None and state.find_start(part.pid) == part.started
        part.healthy = alive and (not part.check or answers(part.check))
    if info:
        info.disk_free = shutil.disk_usage(info.data_dir).free
    return info


def database_url(settings: Settings) -> str:
    """URL of the database with its password: the configured one, else that of the running stack."""
    if settings.database_url:
        return settings.database_url
    info = state.running(home := locate_data_dir(settings))
    port = (
        next((part.address.rpartition(":")[2] for part in info.parts if part.name == "postgres"), None)
        if info
        else None
    )
    if port is None:
        raise StackError("no database: set ERRAND_DATABASE_URL, or start the embedded stack with `errand up`")
    return Postgres(home, None).url(int(port))


def main() -> None:
    """The program that start_detached runs."""
    try:
        asyncio.run(up(Settings.from_env(), on_ready=lambda info: click.echo(f"ready: {info.api_url}"), log=click.echo))
    except (StackError, SettingsError) as error:
        raise SystemExit(f"error: {error}") from None


if __name__ == "__main__":
    main()
