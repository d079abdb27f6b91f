"""A git checkout as one file that a task can begin with: its commits, and as the last one what is not committed yet."""

import os
import shutil
import subprocess
import tempfile
from collections.abc import Mapping
from pathlib import Path

import click

from cli.render.output import clean, note, size
from settings import Settings

SECONDS = 120
# the user's configuration may sign commits or run programs
PLAIN = {"GIT_CONFIG_NOSYSTEM": "1", "GIT_CONFIG_GLOBAL": os.devnull, "GIT_TERMINAL_PROMPT": "0"}
_AUTHOR = {
    f"GIT_{who}_{what}": value
    for who in ("AUTHOR", "COMMITTER")
    for what, value in (("NAME", "Errand"), ("EMAIL", "errand@localhost"), ("DATE", "2000-01-01T00:00:00Z"))
}


def bundle_checkout(place: Path, settings: Settings) -> bytes:
    """The bundle of a checkout. Nothing is written in it: new objects go to a repository beside, which is thrown away.

    If the history is too large for an upload, its files go without it.
    """
    top = find_top(place)
    with tempfile.TemporaryDirectory(prefix="errand-") as folder:
        beside = _make_beside(top, Path(folder))
        tree, head = _git(top, "write-tree", env=beside), _head(top)
        if head is None or tree != _git(top, "rev-parse", f"{head}^{{tree}}"):
            parents = ("-p", head) if head else ()
            head = _git(top, "commit-tree", tree, *parents, "-m", "Changes that were not committed", env=beside)
        content = _bundle(top, head, beside)
        if len(content) > settings.max_file_bytes:
            note(f"with its history the repository has {size(len(content))}: it is sent without it")
            head = _git(top, "commit-tree", tree, "-m", "The files without their history", env=beside)
            content = _bundle(top, head, beside)
    if len(content) > settings.max_file_bytes:
        raise click.UsageError(
            f"--repo {place}: {size(len(content))}, and an upload has at most {size(settings.max_file_bytes)}; "
            "define an environment with its address instead"
        )
    return content


def need_git(what: str) -> None:
    if shutil.which("git") is None:
        raise click.UsageError(f"{what} needs the program git (on Debian and Ubuntu: apt install git)")


def find_top(place: Path) -> Path:
    """The top of the checkout in which a folder is."""
    need_git("--repo")
    return Path(_git(place, "rev-parse", "--show-toplevel"))


def make_sample_repository(files: Path) -> Path:
    """A new git repository with one commit of these files. It stays, so that people can apply changes to it."""
    need_git("this demo")
    folder = Path(tempfile.mkdtemp(prefix="errand-demo-"))
    shutil.copytree(files, folder, dirs_exist_ok=True)
    _git(folder, "init", "-q")
    _git(folder, "add", "-A")
    _git(folder, "commit", "-q", "-m", "Harbour lights", env=_AUTHOR)
    return folder


def _make_beside(top: Path, folder: Path) -> dict[str, str]:
    """The environment in which git writes elsewhere, with an index of all that it does not ignore."""
    own = Path(_git(top, "rev-parse", "--absolute-git-dir"))
    _git(top, "init", "-q", "--bare", str(folder))
    common = (top / _git(top, "rev-parse", "--git-common-dir")).resolve()
    (folder / "objects/info/alternates").write_text(f"{common / 'objects'}\n")
    for name in ("shallow", "info/exclude"):
        if (common / name).is_file():
            shutil.copy(common / name, folder / name)
    if (own / "index").is_file():
        # with its time: git reads a file of the same second and size again only if the index is not younger
        shutil.copy2(own / "index", folder / "index")
    env = {"GIT_DIR": str(folder), "GIT_WORK_TREE": str(top), **_AUTHOR}
    _git(top, "add", "-A", env=env)
    return env


def _head(top: Path) -> str | None:
    try:
        return _git(top, "rev-parse", "--verify", "-q", "HEAD")
    except click.UsageError:  # there is no commit yet
        return None


def _bundle(top: Path, commit: str, env: Mapping[str, str]) -> bytes:
    _git(top, "symbolic-ref", "HEAD", "refs/heads/errand", env=env)
    _git(top, "update-ref", "refs/heads/errand", commit, env=env)
    file = Path(env["GIT_DIR"], "sent.bundle")
    _git(top, "bundle", "create", "-q", str(file), "HEAD", env=env)
    return file.read_bytes()


def _git(top: Path, *arguments: str, env: Mapping[str, str] = {}) -> str:
    changed = [f"{name}={value}" for name, value in {**PLAIN, **env}.items()]
    command = ["env", *changed, "git", "-c", "core.hooksPath=/dev/null", "-c", "core.fsmonitor=false", *arguments]
    try:
        done = subprocess.run(command, cwd=top, capture_output=True, timeout=SECONDS)
    except subprocess.TimeoutExpired:
        raise click.UsageError(f"--repo {top}: git {arguments[0]} takes more than {SECONDS} s") from None
    if done.returncode != 0:
        said = clean(done.stderr.decode(errors="replace")).strip().splitlines() or [f"git {arguments[0]} failed"]
        why = next((line for line in said if line.startswith("fatal: ")), said[-1])  # hints may follow
        raise click.UsageError(f"--repo {top}: {why}")
    return done.stdout.decode(errors="replace").strip()
