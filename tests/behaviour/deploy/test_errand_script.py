"""The script `errand`: when it installs packages, and when it does not."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from settings import ROOT

# creates the "environment" without a network: each installation adds one line to a file
UV = """#!/bin/sh
[ "$1" = --version ] && exit 0
if [ "$1" = venv ]; then
    for last; do :; done
    mkdir -p "$last/bin" && ln -s {python} "$last/bin/python" && touch "$last/pyvenv.cfg"
else
    sleep 0.3
    for last; do :; done
    basename "$last" >>"{log}"
fi
"""


class Checkout:
    def __init__(self, folder: Path) -> None:
        self.root = folder / "a checkout"
        self.log = folder / "installed"
        self._bin = folder / "bin"
        for path in (self.root / "api", self.root / "scripts", self._bin):
            path.mkdir(parents=True)
        shutil.copy(ROOT / "errand", self.root)
        shutil.copy(ROOT / "scripts" / "venv.sh", self.root / "scripts")
        for name in ("requirements.txt", "requirements-dev.txt"):
            (self.root / name).write_text(f"one version of {name}\n")
        (self.root / "cli.py").write_text("import sys; sys.stdout.write(repr(sys.argv[1:]))")
        self.tool("uv", UV.format(python=sys.executable, log=self.log))

    def tool(self, name: str, text: str) -> None:
        (self._bin / name).write_text(text)
        (self._bin / name).chmod(0o755)

    def start(self, *arguments: str, program: Path | None = None, path: str = os.defpath) -> subprocess.Popen[str]:
        python = Path(sys.executable).parent
        env = {"PATH": f"{self._bin}:{python}:{path}"}
        return subprocess.Popen(
            [program or self.root / "errand", *arguments],
            cwd="/",
            env=env,
            text=True,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        )

    def run(self, *arguments: str, program: Path | None = None) -> str:
        with self.start(*arguments, program=program) as process:
            out, errors = process.communicate(timeout=20)
        assert process.returncode == 0, errors
        return out + errors

    def ensure(self, file: str) -> None:
        script = f'set -eu; root="{self.root}"; . "$root/scripts/venv.sh"; ensure_venv {file}'
        self.run("-c", script, program=Path("/bin/sh"))

    def installed(self) -> list[str]:
        return self.log.read_text().split() if self.log.exists() else []


@pytest.fixture
def checkout(tmp_path: Path) -> Checkout:
    return Checkout(tmp_path)


def test_script_installs_once_and_is_silent_afterwards(checkout: Checkout) -> None:
    first = checkout.run("run", "two words")
    assert first.startswith("['run', 'two words']") and "installing" in first
    assert checkout.run("status") == "['status']"
    assert checkout.installed() == ["requirements.txt"]


def test_script_installs_again_when_the_lock_file_changed(checkout: Checkout) -> None:
    checkout.run()
    (checkout.root / "requirements.txt").write_text("another version\n")
    checkout.run()
    assert checkout.installed() == ["requirements.txt"] * 2


def test_script_never_installs_into_the_system(checkout: Checkout) -> None:
    """Without pyvenv.cfg its python is the system's, which must not be changed."""
    checkout.run()
    (checkout.root / ".venv" / "pyvenv.cfg").unlink()
    with checkout.start() as process:
        _, errors = process.communicate(timeout=20)
    assert process.returncode and "the installation failed" in errors
    assert checkout.installed() == ["requirements.txt"]


def test_two_scripts_started_together_install_once(checkout: Checkout) -> None:
    both = [checkout.start(word) for word in ("one", "two")]
    outputs = []
    for process in both:
        with process:
            outputs.append(process.communicate(timeout=20)[0])
    assert outputs == ["['one']", "['two']"]
    assert checkout.installed() == ["requirements.txt"]
    assert not (checkout.root / ".venv.lock").exists()


def test_lock_of_a_dead_process_is_taken_over(checkout: Checkout) -> None:
    with subprocess.Popen(["true"]) as dead:
        pass
    lock = checkout.root / ".venv.lock"
    lock.mkdir()
    (lock / "pid").write_text(str(dead.pid))
    checkout.run()
    assert checkout.installed() == ["requirements.txt"]
