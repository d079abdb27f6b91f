"""Trees: the commits of the repositories with which a workspace begins, and what a task changed in them.

`PrepareTree` decides on the commits before the first step and runs the environment's setup; `Workspaces` builds the
tree with `Mirrors` wherever a worker lacks it, and keeps what differs from it. At the end the changes become artifacts.

Git runs in the sandbox only: hooks, filters and configuration of a repository, and a bundle that a caller sends, are
programs and data of strangers. The sandbox bounds what a repository may take, and its proxy is the guarded way out.
"""

import asyncio
import contextlib
import hashlib
import operator
import os
import re
import shlex
import shutil
import time
from collections.abc import AsyncIterator
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from urllib.parse import quote

from temporalio import activity
from temporalio.exceptions import ApplicationError

from activities.attempt import retry_if_away, run_of, with_heartbeats
from activities.egress import Guard
from activities.environments import Environments, OpenEnvironment
from activities.sandbox import Commands, NetworkPolicy, SandboxResult
from activities.skills import brief
from activities.tools.support.paths import Workspace
from activities.tools.tool import clean
from activities.workspaces import Workspaces, lock_workspace, try_lock_workspace
from domain import events as ev
from domain import wire
from domain.conversations.requests import Nothing
from domain.environments import PATCH, Checkout, EnvironmentSpec, Tree, TreeSource
from domain.events import EventRow
from domain.ids import derive_id
from domain.policy.rules import PathError, host_of
from domain.redaction import Redactor
from domain.sessions.new_session import Trigger
from domain.sessions.session import SessionRef, TreeRequest, preview
from domain.sessions.writes import NewFile
from store import environments, files, sessions, workspaces
from store import events as event_log
from store.database import Pool
from store.sessions import SessionRow

MIRRORS, MIRROR_BYTES = 20, 20_000_000_000  # of one worker together, but for the one used last
FETCH_SECONDS = 600.0
GIT_SECONDS = 120.0
MAX_LOG = 20_000  # characters of a setup's output, from its end
MAX_TAIL = 2_000  # characters of a failed command's output
ERRORS = 20  # lines
BUNDLE = "incoming.bundle"
COMMITS, STAT, OWN = "commits.bundle", "changes.stat", "own.patch"
_GIT = """set -e
export GIT_CONFIG_NOSYSTEM=1 GIT_CONFIG_GLOBAL=/dev/null GIT_TERMINAL_PROMPT=0 GIT_ALLOW_PROTOCOL=file:http:https
unset no_proxy NO_PROXY
command -v git >/dev/null || { echo 'there is no git program on this worker'; exit 127; }
git() { command git -c safe.directory='*' -c core.hooksPath=/dev/null -c gc.auto=0 "$@"; }
case "$(git version)" in
*' 1.'*|*' 2.'[0-9].*|*' 2.'[12][0-9].*|*' 2.3'[0-8].*) echo 'git must be 2.39 or newer'; exit 127;;
esac
"""

# Of a git that was killed: with its locks every later one would be refused, and nobody else works in a
# mirror that is locked.
_UNLOCK = "find . -type f \\( -name '*.lock' -o -name 'tmp_*' \\) -delete\n"


class TreeError(Exception):
    """The tree cannot be made; the message explains why, for people."""


class Mirrors:
    """The repositories that this worker has fetched, each in a folder of its own, one fetch at a time."""

    def __init__(self, pool: Pool, root: Path, commands: Commands, guard: Guard, environments: Environments) -> None:
        self._pool = pool
        self._root = root
        # git keeps a whole history in one file
        self._commands = replace(commands, limits=replace(commands.limits, file_bytes=commands.limits.disk_bytes))
        self._guard = guard
        self._environments = environments

    async def find_commit(self, tenant: str, session_id: str, source: TreeSource) -> str:
        """The commit that a name means now. It is fetched, so that a build needs nothing from outside."""
        async with self._mirror(tenant, session_id, source) as (mirror, network):
            return await self._fetch(tenant, mirror, network, source)

    async def build(self, tenant: str, session_id: str, tree: Tree, folder: Path) -> None:
        """Check the tree out in an empty folder, each repository with a `.git` of its own. The session is the one after
        which the workspace is named, not the one that continues it: it decided on the commits, with its credentials."""
        for one in tree.checkouts:
            await self._check_out(tenant, session_id, one, folder)

    async def _check_out(self, tenant: str, session_id: str, one: Checkout, folder: Path) -> None:
        async with self._mirror(tenant, session_id, one) as (mirror, network):
            if not await self._has(mirror, one.commit):
                await self._fetch_commit(tenant, mirror, network, one)
            depth = f"--depth={one.depth}" if one.depth else ""
            origin = f"set-url origin {shlex.quote(one.url)}" if one.url else "remove origin"
            sparse = f"git sparse-checkout set {' '.join(map(shlex.quote, one.sparse))}\n" if one.sparse else ""
            await self._git(
                f"mkdir -p ./{one.folder}\n{_enter(one)}git init -q -b {shlex.quote(one.branch)} .\n"
                f"git remote add origin {shlex.quote(f'file://{mirror}')}\n"
                f"git fetch -q --no-tags {depth} {_filter(one)} origin refs/errand/{one.commit}\n"
                f"{sparse}git reset -q --hard {one.commit}\n"
                "git config user.name Errand && git config user.email errand@localhost && git config gc.auto 0\n"
                "mkdir -p .git/info && printf '/.outputs/\\n/.skills/\\n' >>.git/info/exclude\n"  # files of ours
                f"rm -f .git/FETCH_HEAD .git/hooks/*\ngit remote {origin}",
                folder,
                readable=mirror,
                seconds=FETCH_SECONDS,
            )

    async def _fetch_commit(self, tenant: str, mirror: Path, network: NetworkPolicy | None, one: Checkout) -> None:
        """Some servers give a commit only by the name of a branch or a tag."""
        try:
            await self._fetch(tenant, mirror, network, one.model_copy(update={"ref": one.commit}))
        except TreeError:
            await self._fetch(tenant, mirror, network, one.model_copy(update={"depth": 0}), one.commit)

    async def _fetch(
        self, tenant: str, mirror: Path, network: NetworkPolicy | None, source: TreeSource, commit: str = "FETCH_HEAD"
    ) -> str:
        if source.url is None:
            await self._put_bundle(tenant, mirror, source.place)
        depth = f"--depth={source.depth}" if source.depth and source.url else ""
        place, name = shlex.quote(source.url or BUNDLE), shlex.quote(source.ref or "HEAD")
        output = await self._git(
            f"[ -e HEAD ] || git init -q --bare .\n{_UNLOCK}"
            f"git config uploadpack.allowFilter true\ngit fetch -q --no-tags {depth} {_filter(source)} {place} {name}\n"
            f"commit=$(git rev-parse -q --verify '{commit}^{{commit}}') || "
            f"{{ echo 'the repository no longer has {commit}'; exit 1; }}\n{_fetch_contents(source)}"
            f'git update-ref refs/errand/$commit $commit\nrm -f {BUNDLE}\necho "commit $commit"',
            mirror,
            network=network,
            seconds=FETCH_SECONDS,
        )
        return output.rpartition("commit ")[2].strip()

    async def push(self, ref: SessionRef, one: Checkout, folder: Path, most: int) -> str:
        """Push what is checked out in a repository of a workspace as the branch of its task; returns the commit.

        The commits leave the workspace as a bundle of at most so many bytes, made without a network, and are pushed
        from the mirror: a program that the configuration of the workspace names never runs beside the credential.
        """
        await self._git(
            f'{_enter(one)}[ -n "$(git rev-list -n 1 {one.commit}..HEAD)" ] || '
            "{ echo 'there is no new commit'; exit 1; }\n"
            f"git bundle create -q .git/{BUNDLE} {one.commit}..HEAD",
            folder,
        )
        content = await asyncio.to_thread(take_file, Workspace(folder), f"{one.prefix}.git/{BUNDLE}", most)
        if content is None:
            raise TreeError(f"the new commits have more than {most:,} bytes")
        async with self._mirror(ref.tenant, ref.session_id, one) as (mirror, network):
            if not await self._has(mirror, one.commit):  # it was evicted, or another user pushes than has fetched
                await self._fetch_commit(ref.tenant, mirror, network, one)
            await asyncio.to_thread(Workspace(mirror).write, BUNDLE, content)
            output = await self._git(
                f"{_UNLOCK}git fetch -q --no-tags --update-shallow {BUNDLE} HEAD\n"
                f"commit=$(git rev-parse 'FETCH_HEAD^{{commit}}')\nrm -f {BUNDLE}\n"
                f"git push -q {shlex.quote(one.place)} $commit:refs/heads/{shlex.quote(one.branch)}\n"
                'echo "commit $commit"',
                mirror,
                network=network,
                seconds=FETCH_SECONDS,
            )
        return output.rpartition("commit ")[2].strip()

    async def _put_bundle(self, tenant: str, mirror: Path, file_id: str) -> None:
        found = await files.content(self._pool, tenant, file_id)
        if found is None:
            raise TreeError("The uploaded repository was deleted.")
        await asyncio.to_thread(Workspace(mirror).write, BUNDLE, found[2])

    async def _has(self, mirror: Path, commit: str) -> bool:
        with contextlib.suppress(TreeError):
            await self._git(f"git rev-parse -q --verify refs/errand/{commit}", mirror)  # written last
            return True
        return False

    async def _git(
        self,
        script: str,
        folder: Path,
        *,
        network: NetworkPolicy | None = None,
        readable: Path | None = None,
        seconds: float = GIT_SECONDS,
    ) -> str:
        result = await self._commands.run(_GIT + script, folder, seconds, network, readable)
        hidden = [text for one in (network.credentials if network else ()) for text in one.texts]
        return output_of(
            replace(result, output=Redactor(hidden).text(result.output))
        )  # an error may repeat the request

    @contextlib.asynccontextmanager
    async def _mirror(
        self, tenant: str, session_id: str, source: TreeSource
    ) -> AsyncIterator[tuple[Path, NetworkPolicy | None]]:
        """A mirror, and the network to the host of its repository alone, with the credential.

        What a credential of a user or a task fetched is theirs: git asks no server for a commit that is here already,
        so in a common mirror everybody who knows the name of a commit could read it.
        """
        network, owner = None, ""
        if source.url is not None:
            names = [source.credential] if source.credential is not None else []
            found = await self._environments.open_credentials(tenant, session_id, names) if names else {}
            if names and not found:
                raise TreeError(f"the credential {source.credential} was deleted")
            host, used = host_of(source.url), tuple(found.values())
            network = NetworkPolicy(self._guard, lambda one: one == host, used)
            owner = "".join(f"\n{one.owner}" for one in used if one.owner)
        contents = [source.filter, *source.sparse] if source.filter else []  # it has no others
        digest = hashlib.sha256("\n".join([f"{source.place}{owner}", *contents]).encode()).hexdigest()[:32]
        home = self._root / quote(tenant, safe="") / digest
        async with lock_workspace(home):
            os.utime(home)
            folder = home / "mirror"
            folder.mkdir(exist_ok=True)
            yield folder, network
        await asyncio.to_thread(self._evict)

    def _evict(self) -> None:
        """Remove those that were not used for longest. The newest stays, and so does one that somebody works in."""
        used: dict[Path, tuple[float, int]] = {}
        for home in self._root.glob("*/*"):
            with contextlib.suppress(FileNotFoundError):  # another call removes it
                used[home] = home.stat().st_mtime, sum(path.lstat().st_size for path in home.rglob("*"))
        room = MIRROR_BYTES
        for place, (home, (_, size)) in enumerate(sorted(used.items(), key=lambda one: one[1], reverse=True)):
            room -= size
            if place and (place >= MIRRORS or room < 0) and (lock := try_lock_workspace(home)) is not None:
                shutil.rmtree(home, ignore_errors=True)
                os.close(lock)


def _filter(source: TreeSource) -> str:
    return f"--filter={source.filter}" if source.filter else ""


def _fetch_contents(source: TreeSource) -> str:
    """The script that fetches what a checkout of $commit needs, all at once: nothing can be fetched when it is made."""
    if not source.filter:
        return ""
    folders = " ".join(map(shlex.quote, source.sparse))
    shape = (
        f"git init -q /tmp/shape\ngit -C /tmp/shape sparse-checkout set {folders}\n"
        "shape=--filter=sparse:oid=$(git hash-object -w /tmp/shape/.git/info/sparse-checkout)\n"
    )
    return (
        f"{shape if folders else ''}"
        "git rev-list --objects --missing=print --no-walk $shape $commit >/tmp/objects\n"
        "sed -n 's/^?//p' /tmp/objects >/tmp/missing\n"
        "[ ! -s /tmp/missing ] || git -c fetch.negotiationAlgorithm=noop fetch -q --no-tags --no-write-fetch-head "
        f"{_filter(source)} --stdin {shlex.quote(source.place)} </tmp/missing\n"
    )


def _enter(one: Checkout) -> str:
    """The agent may have put a link in the place of the folder: only what runs in the sandbox follows it."""
    return f"cd ./{one.folder}\n"


def output_of(result: SandboxResult) -> str:
    """The output of a command that succeeded. Raises TreeError with its last lines."""
    if result.refusal:
        raise TreeError(result.refusal)
    if result.exit_code == 0:
        return result.output
    lines = [line for line in clean(result.output).splitlines() if line.strip()]
    if "could not read Username" in result.output or "Authentication failed" in result.output:
        lines.append("(it does not exist, or it needs a credential, or another one)")
    why = "it took too long" if result.timed_out else result.stopped or f"exit code {result.exit_code}"
    raise TreeError(f"{why}: " + "\n".join(lines[-ERRORS:])[-MAX_TAIL:])


def take_file(workspace: Workspace, path: str, most: int) -> bytes | None:
    """The content of a file that git made for us, which is removed; None if there is none, or more than that."""
    try:
        content = workspace.read(path, most + 1)
        workspace.remove(path)
    except PathError:
        return None
    return content if len(content) <= most else None


class Trees:
    """The activities before the first step of a session and after its last one."""

    def __init__(
        self, pool: Pool, workspaces: Workspaces, mirrors: Mirrors, commands: Commands, environments: Environments
    ) -> None:
        self._environments = environments
        self._pool = pool
        self._workspaces = workspaces
        self._mirrors = mirrors
        self._commands = commands

    @activity.defn(name="prepare_tree")
    @with_heartbeats
    async def prepare_tree(self, request: TreeRequest) -> Nothing:
        """Decide on the commit, check it out and run the setup. A later turn finds all of it."""
        ref, began = request.ref, time.monotonic()
        with retry_if_away():
            try:
                await self._prepare(ref, request.workspace_id, began)
            except TreeError as error:
                raise ApplicationError(f"The repository: {error}", type=wire.NO_TREE, non_retryable=True) from None
        return Nothing()

    async def _prepare(self, ref: SessionRef, workspace_id: str, began: float) -> None:
        session = await sessions.get(self._pool, ref.tenant, ref.session_id)
        assert session is not None
        config, first = session.task.config, session.id == workspace_id and session.trigger not in _COPIES
        environment = None
        if config.environment is not None and first:
            environment = await self._environments.open(ref, config.environment)
            if environment is None:
                raise TreeError(f"the environment {config.environment} was deleted")
        tree = await environments.tree_of(self._pool, ref.tenant, workspace_id)
        if tree is None:
            tree = await self._copy(ref.tenant, workspace_id)
        if tree is None:
            await self._write_event(ref, ev.Progress(message="the repository is fetched"))
            tree = await self._choose(ref, workspace_id, environment.spec if environment else None, session)
        folder = await self._workspaces.ready(ref.tenant, workspace_id, 0)
        for one in tree.checkouts:
            event = ev.TreePrepared(
                folder=one.folder or None, commit=one.commit, branch=one.branch, seconds=_since(began)
            )
            await self._write_event(ref, event, one.folder)
        if environment is not None and environment.spec.setup is not None and not tree.set_up:
            await self._set_up(ref, workspace_id, tree, environment, folder)
        await brief(self._pool, ref.tenant, workspace_id, folder)

    async def _copy(self, tenant: str, workspace_id: str) -> Tree | None:
        """The tree of a rerun's or a fork's workspace: its files are what its source had besides these very commits."""
        first = await sessions.get(self._pool, tenant, workspace_id)  # it is named after its first session
        named = (first.spawned_by or first.parent_session_id) if first and first.trigger in _COPIES else None
        source = await sessions.get(self._pool, tenant, named) if named is not None else None
        tree = await environments.tree_of(self._pool, tenant, source.workspace_id) if source is not None else None
        if first is None or source is None or tree is None:
            return None
        if first.trigger is Trigger.ATTEMPT:  # those of a rerun were copied when it was accepted
            _, manifest, _ = await workspaces.get_all(self._pool, tenant, source.workspace_id)
            await workspaces.update(self._pool, tenant, workspace_id, partial(operator.or_, manifest))
        copy = tree.model_copy(update={"set_up": True, "setup": None})
        return await environments.set_tree(self._pool, tenant, workspace_id, copy)

    async def _choose(
        self, ref: SessionRef, workspace_id: str, environment: EnvironmentSpec | None, session: SessionRow
    ) -> Tree:
        config = session.task.config
        refs = {"": config.ref, **config.refs}
        if environment is not None:
            sources = {
                folder: TreeSource(**dict(git, ref=refs.get(folder) or git.ref))
                for folder, git in environment.sources.items()
            }
        else:
            sent = {"": config.repository} if config.repository is not None else config.repositories
            sources = {folder: TreeSource(bundle=one, ref=refs.get(folder)) for folder, one in sent.items()}
        branch = f"errand/{slug_of(session.title)}-{ref.session_id[-8:]}"
        checkouts = [
            Checkout(
                **dict(source),
                folder=folder,
                commit=await self._mirrors.find_commit(ref.tenant, ref.session_id, source),
                branch=branch,
            )
            for folder, source in sources.items()
        ]
        return await environments.set_tree(self._pool, ref.tenant, workspace_id, Tree(checkouts=checkouts))

    async def _set_up(
        self, ref: SessionRef, workspace_id: str, tree: Tree, environment: OpenEnvironment, folder: Path
    ) -> None:
        """Run the setup, or the maintenance where an earlier task's setup was taken over."""
        spec = environment.spec
        try:
            secrets = await self._environments.open_secrets(ref, spec)
        except KeyError as error:
            raise TreeError(f"the credential {error.args[0]} was deleted") from None
        # what was made with a credential of a user or a task is not taken over by others
        owners = sorted({one.owner for one in (*environment.credentials, *secrets.values())})
        key = spec.setup_key("\n".join([await self._digest_inputs(tree, spec, folder), *owners]))
        script, earlier = spec.setup, await environments.find_setup(self._pool, ref.tenant, key)
        if earlier is not None:
            manifest = await workspaces.as_of(self._pool, ref.tenant, *earlier)
            await self._workspaces.adopt(ref.tenant, workspace_id, tree, manifest)
            script = spec.maintenance
        if script is not None:
            values = {variable: one.secret for variable, one in secrets.items()}
            await self._run_setup(ref, environment, values, script, folder, reused=earlier is not None)
        report = await self._workspaces.keep(ref.tenant, workspace_id)
        version, _ = await workspaces.get(self._pool, ref.tenant, workspace_id)
        whole = None if report.skipped else key  # what cannot be kept cannot be taken over
        ready = tree.model_copy(update={"set_up": True, "setup": whole, "setup_version": version})
        await environments.record_setup(self._pool, ref.tenant, workspace_id, ready)

    async def _digest_inputs(self, tree: Tree, spec: EnvironmentSpec, folder: Path) -> str:
        commits = {one.folder: one.commit for one in tree.checkouts}
        if not spec.setup_inputs:
            return "\n".join(commits.values())
        places = [place for place in map(spec.locate, spec.setup_inputs) if place[0] in commits]
        script = _GIT + "\n".join(
            f"git -C ./{folder} rev-parse -q --verify {commits[folder]}:{shlex.quote(path)} || echo none"
            for folder, path in places
        )
        return output_of(await self._commands.run(script, folder, GIT_SECONDS))

    async def _run_setup(
        self,
        ref: SessionRef,
        environment: OpenEnvironment,
        secrets: dict[str, str],
        script: str,
        folder: Path,
        *,
        reused: bool,
    ) -> None:
        began, spec = time.monotonic(), environment.spec
        await self._write_event(ref, ev.Progress(message="the maintenance runs" if reused else "the setup runs"))
        network = environment.setup_network(self._commands.guard)
        variables = {**spec.variables, **secrets}
        result = await self._commands.run(script, folder, spec.setup_seconds, network, variables=variables)
        log = Redactor([*secrets.values(), *environment.hidden]).text(clean(result.output))[-MAX_LOG:]
        failed = result.exit_code != 0
        await self._write_event(ref, ev.SetupFinished(ok=not failed, reused=reused, seconds=_since(began), log=log))
        if failed:
            why = result.refusal or ("it took too long" if result.timed_out else f"exit code {result.exit_code}")
            raise TreeError(f"the setup failed ({why}): {preview(log[-300:], 300)}")

    async def _write_event(self, ref: SessionRef, event: ev.Event, of: str = "") -> None:
        text = event.message if isinstance(event, ev.Progress) else of
        batch = f"{ref.session_id}/{event.type}{text}"  # a retry does not repeat it
        await event_log.append(self._pool, batch, [EventRow.of(ref, event)], again=True)

    # what the task changed

    @activity.defn(name="collect_changes")
    @with_heartbeats
    async def collect_changes(self, request: TreeRequest) -> Nothing:
        """Keep the changes as artifacts: a patch that `git apply` takes, and the commits that were made."""
        ref = request.ref
        tree = await environments.tree_of(self._pool, ref.tenant, request.workspace_id)
        if tree is None:  # it was never made
            return Nothing()
        with retry_if_away(), self._workspaces.use(ref.tenant, request.workspace_id):
            version, _ = await workspaces.get(self._pool, ref.tenant, request.workspace_id)
            folder = await self._workspaces.ready(ref.tenant, request.workspace_id, version)
            changed: list[_Change] = []
            for one in tree.checkouts:
                try:
                    changed += await self._diff(one, folder)
                except (TreeError, PathError) as error:  # the agent may have removed .git
                    activity.logger.warning("the changes of a repository cannot be listed: %s", error)
            await self._save(ref, _join_patches(changed, self._workspaces.caps.file_bytes))
        return Nothing()

    async def _diff(self, one: Checkout, folder: Path) -> list["_Change"]:
        """Of one among several: its own patch, too, without its folder in the paths."""
        script = _enter(one) + (
            # with its time: git reads a file of the same second and size again only if the index is not younger
            "cp -p .git/index /tmp/index && export GIT_INDEX_FILE=/tmp/index\n"
            # what git refuses to track, such as a second .git, is left out
            f"git add -A --ignore-errors || true\n"
            # whatever the repository's configuration says of differences: `git apply` has to take it
            f"difference() {{ git -c diff.orderFile=/dev/null diff --cached --no-color --no-ext-diff --no-textconv "
            f'--no-relative --submodule=short "$@" {one.commit}; }}\n'
            f"difference --binary --src-prefix=a/{one.prefix} --dst-prefix=b/{one.prefix} >.git/{PATCH}\n"
            f"difference --shortstat >.git/{STAT}\n"
            f'if [ -n "$(git rev-list -n 1 {one.commit}..HEAD)" ]; then\n'
            f"git bundle create -q .git/{COMMITS} {one.commit}..HEAD; fi"
        )
        if one.folder:
            script += f"\ndifference --binary --src-prefix=a/ --dst-prefix=b/ >.git/{OWN}"
        output_of(await self._commands.run(_GIT + script, folder, GIT_SECONDS))
        return await asyncio.to_thread(self._take_changes, Workspace(folder), one)

    def _take_changes(self, workspace: Workspace, one: Checkout) -> list["_Change"]:
        most = self._workspaces.caps.file_bytes
        found = {name: take_file(workspace, f"{one.prefix}.git/{name}", most) for name in (PATCH, OWN, COMMITS, STAT)}
        stat = (found[STAT] or b"").decode(errors="replace").strip()
        of = f"-{one.folder}" if one.folder else ""
        changes = [
            _Change(COMMITS.replace(".", f"{of}."), "commits", _ABOUT_COMMITS, found[COMMITS]),
            _Change(PATCH.replace(".", f"{of}."), "patch", stat, found[OWN]),
            _Change(PATCH, "patch", f"{one.folder}: {stat}" if of else stat, found[PATCH]),
        ]
        return [change for change in changes if change.content]

    async def _save(self, ref: SessionRef, changed: list["_Change"]) -> None:
        digests = await files.put_blobs(self._pool, ref.tenant, [one.content or b"" for one in changed])
        new = [
            NewFile(
                id=derive_id(ref.session_id, "artifact", one.name, digest),
                sha256=digest,
                size=len(one.content or b""),
                name=one.name,
                media_type="text/x-diff" if one.type == "patch" else "application/octet-stream",
                type=one.type,
                description=one.about,
            )
            for one, digest in zip(changed, digests, strict=True)
        ]
        events = [
            EventRow.of(ref, ev.ArtifactSaved(name=one.name, artifact_type=one.type, file_id=one.id, size=one.size))
            for one in new
        ]
        batch = derive_id(ref.session_id, *sorted(digests))
        await files.save_artifacts(self._pool, ref, run_of(ref), new, events, batch)


_COPIES = frozenset({Trigger.RERUN, Trigger.FORK, Trigger.ATTEMPT})
_ABOUT_COMMITS = "The commits that were made; `git fetch FILE HEAD` takes them."


@dataclass(frozen=True)
class _Change:
    """An artifact."""

    name: str
    type: str
    about: str
    content: bytes | None


def _join_patches(changed: list[_Change], most: int) -> list[_Change]:
    """The patches of several repositories as one, unless it is too large."""
    parts = [one for one in changed if one.name == PATCH]
    whole = _Change(
        PATCH, "patch", "; ".join(one.about for one in parts), b"".join(one.content or b"" for one in parts)
    )
    rest = [one for one in changed if one.name != PATCH]
    return [*rest, whole] if whole.content and len(whole.content) <= most else rest


def _since(began: float) -> float:
    return round(time.monotonic() - began, 2)


def slug_of(title: str) -> str:
    """A title as a part of the name of a branch."""
    return re.sub(r"[^a-z0-9]+", "-", title.lower()).strip("-")[:40].rstrip("-") or "task"
