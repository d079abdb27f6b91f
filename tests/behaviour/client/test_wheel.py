"""The package: the contents of the wheel; the installed command works and keeps its data in the user's folder."""

import compileall
import json
import os
import subprocess
import sys
import sysconfig
import venv
import zipfile
from pathlib import Path

import pytest

from settings import ROOT
from tests.support.launch import free_port, home


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("wheel")
    subprocess.run([sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(folder)], cwd=ROOT, check=True)
    [found] = folder.glob("*.whl")
    return found


@pytest.fixture(scope="module")
def installed(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A virtual environment with the wheel; its dependencies are the packages of the test environment."""
    folder = tmp_path_factory.mktemp("installed")
    venv.create(folder, symlinks=True)
    packages = Path(sysconfig.get_path("purelib", vars={"base": str(folder), "platbase": str(folder)}))
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(packages)
    compileall.compile_dir(packages / "errand", quiet=2)  # once, and not by each process of the stack at the same time
    (packages / "tests.pth").write_text(sysconfig.get_path("purelib"))
    script = folder / "bin" / "errand"
    script.write_text(f"#!{folder}/bin/python\nfrom errand.__main__ import main\nmain()\n")
    script.chmod(0o755)
    (folder / "bin" / "temporal").symlink_to(Path(sysconfig.get_path("scripts")) / "temporal")
    return folder


def test_the_wheel_has_one_package_with_all_that_it_needs(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        names = {name for name in archive.namelist() if ".dist-info/" not in name}
        [points] = [archive.read(name).decode() for name in archive.namelist() if name.endswith("entry_points.txt")]
    assert {name.split("/")[0] for name in names} == {"errand"}
    assert "errand = errand.__main__:main" in points
    assert {"errand/__init__.py", "errand/py.typed", "errand/app/worker.py", "errand/app/settings.py"} <= names
    tracked = subprocess.run(["git", "ls-files"], cwd=ROOT, capture_output=True, text=True, check=True).stdout.split()
    folders = ("activities", "agents", "api", "cli", "connectors", "domain", "offline", "store", "workflows")
    assert {f"errand/app/{name}" for name in tracked if name.startswith(tuple(f"{one}/" for one in folders))} <= names
    assert not [name for name in names if "__pycache__" in name or "/tests/" in name or name.endswith((".pem", ".key"))]


def test_the_installed_command_runs_a_stack_and_keeps_its_data_in_the_users_folder(
    installed: Path, tmp_path: Path
) -> None:
    with home() as folder:
        ours = ("ERRAND_", "PYTHON", "ANTHROPIC_")
        env = {name: value for name, value in os.environ.items() if not name.startswith(ours)}
        env |= {"XDG_DATA_HOME": str(folder), "ERRAND_PORT": str(free_port())}

        def run(program: str, *args: str) -> str:
            command = [str(installed / "bin" / program), *args]
            done = subprocess.run(command, cwd=tmp_path, env=env, capture_output=True, text=True, timeout=120)
            assert done.returncode == 0, done.stderr[-3_000:]
            return done.stdout

        assert "errand up" in (shown := run("errand", "--help")) and "./errand" not in shown
        assert run("errand", "--version").startswith("errand 0.")
        up = json.loads(run("errand", "up", "--detach", "--json"))
        try:
            assert up["data_dir"] == str(folder / "errand" / "data")
            assert "task_completed" in run("errand", "run", "assistant", "Count the files", "--json")
            sample = (
                "import sys; from errand import Errand; print(next(Errand().tasks()).status, 'domain' in sys.modules)"
            )
            assert run("python", "-c", sample).split() == ["completed", "False"]
        finally:
            run("errand", "down")
    assert list(tmp_path.iterdir()) == []  # nothing is written to the working directory
    assert not [path for path in installed.rglob("*") if path.name in (".errand", "stack.json", "workspaces")]
