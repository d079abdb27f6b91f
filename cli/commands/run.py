"""`errand run`: submit a task and watch it."""

import secrets
import sys
from pathlib import Path
from typing import Any, BinaryIO

import click

from cli.api import Api
from cli.errors import Exit, Unreachable
from cli.ids import AgentNameType
from cli.options import detach_option, no_input_option, patience_option, remote, settings, work_options
from cli.render.output import note
from cli.repository import bundle_checkout, find_top
from cli.trees import pack_folder, upload_files, upload_folder
from cli.watch import watch_or_detach
from domain.json_object import JsonObject, read_json
from domain.sessions.session import SandboxMode


@click.command()
@click.argument("agent", type=AgentNameType())
@click.argument("text", metavar="[INPUT]", required=False)
@click.option("--input-json", type=click.File("rb"), help="Structured input from this JSON file; - is stdin.")
@work_options
@click.option("--max-steps", type=click.IntRange(min=1), help="Limit of model calls.")
@click.option("--max-tokens", type=click.IntRange(min=1), help="Token budget.")
@click.option("--max-tool-calls", type=click.IntRange(min=1), help="Limit of tool calls.")
@click.option(
    "--sandbox",
    type=click.Choice([mode.value for mode in SandboxMode]),
    help="The sandbox for its commands.",
)
@click.option(
    "--repo",
    "checkouts",
    multiple=True,
    type=click.Path(exists=True, file_okay=False, path_type=Path),
    help="Work in a copy of this git checkout, with its uncommitted changes. Repeatable: each in a folder of its name.",
)
@click.option("--environment", help="Work in the repository of this environment.")
@click.option("--ref", "refs", multiple=True, help="Branch, tag or commit of the repository; of several: FOLDER=REF.")
@click.option("--attempts", type=click.IntRange(2, 8), help="Try it this often in the repository; one is chosen.")
@click.option(
    "--criterion", "acceptance_criteria", multiple=True, help="Acceptance criterion of the result. Repeatable."
)
@click.option("--check", "checks", multiple=True, help="Acceptance criterion: this command must succeed. Repeatable.")
@click.option("--constraint", "constraints", multiple=True, help="Something the agent must not violate. Repeatable.")
@click.option("--approve-plan", "approval_required", is_flag=True, help="Do nothing before you have approved the plan.")
@click.option("--dry-run", is_flag=True, help="Describe calls that would change something instead of running them.")
@click.option("--notify", multiple=True, help="Notify this subscription or channel about the task. Repeatable.")
@click.option("--title", help="A short title for lists.")
@click.option("--idempotency-key", help="A second call with the same key submits nothing.")
@detach_option
@no_input_option
@patience_option
@remote
def run(
    api: Api,
    agent: str,
    text: str | None,
    input_json: BinaryIO | None,
    files: tuple[Path, ...],
    folders: tuple[Path, ...],
    checkouts: tuple[Path, ...],
    refs: tuple[str, ...],
    idempotency_key: str | None,
    detach: bool,
    no_input: bool,
    patience: int,
    as_json: bool,
    **options: Any,
) -> None:
    """Submit a task to AGENT and watch it until it ends.

    INPUT is the task as text; - reads it from stdin. Ctrl-C detaches: the task continues, and `attach` shows it again.
    The exit code is the outcome: 0 completed, 1 failed, 3 cancelled.

    \b
    Examples:
      ./errand run assistant "Look around the workspace and write a short report"
      ./errand run researcher - --ttl 30m --max-cost 2 < question.txt
      ./errand run code-reviewer "Review this" --file main.py --criterion "names each bug with its line"
      ./errand run assistant "Tidy up" --permission "bash=ask" --permission "bash:rm *=deny"
      ./errand run assistant "Fix the failing test" --dir . && ./errand pull last
      ./errand run assistant "Fix the failing test" --repo . && ./errand apply last
      ./errand run coder "Make it twice as fast" --repo . --check "make test" --attempts 3 && ./errand attempts last
      ./errand run assistant "Tidy up" --detach --json | jq -r .task_id
    """
    spec: JsonObject = {"agent": agent, "input": _input(text, input_json)}
    limits = ("ttl", "max_steps", "max_tokens", "max_cost_usd", "max_tool_calls")
    config = {name: options.pop(name) for name in (*limits, "model", "sandbox", "environment", "attempts")}
    config |= {name: options.pop(name) or None for name in ("approval_required", "dry_run", "notify")}
    options["acceptance_criteria"] += tuple({"kind": "command", "run": check} for check in options.pop("checks"))
    spec |= {name: value for name, value in options.items() if value}
    plain = [one for one in refs if "=" not in one]
    if len(plain) > 1:
        raise click.UsageError("--ref: one repository has one ref; of several repositories write FOLDER=REF")
    # first, so that a folder that is too large is refused before any upload
    archives = [pack_folder(folder, settings()) for folder in folders]
    bundles = {find_top(place).name: bundle_checkout(place, settings()) for place in checkouts}
    if len(bundles) < len(checkouts):
        raise click.UsageError("--repo: two checkouts have the same name")
    context = {"files": upload_files(api, files), "archives": [upload_folder(api, packed) for packed in archives]}
    sent = {name: api.upload(("repository.bundle", content)).file_id for name, content in bundles.items()}
    config |= {"repositories": sent} if len(sent) > 1 else {"repository": next(iter(sent.values()), None)}
    named = dict(one.split("=", 1) for one in refs if "=" in one)
    config |= {"refs": named or None, "ref": next(iter(plain), None)}
    spec["config"] = {name: value for name, value in config.items() if value is not None}
    spec["context"] = {name: value for name, value in context.items() if value}
    handle = _submit(api, spec, idempotency_key or secrets.token_hex(16))
    for notice in handle.get("notices", []):
        note(notice)
    if not (detach or as_json):
        note("Ctrl-C detaches; the task continues.")
    watch_or_detach(
        api,
        handle["task_id"],
        handle,
        detach=detach,
        patience_ms=patience,
        as_json=as_json,
        action="Submitted",
        no_input=no_input,
    )


def _submit(api: Api, spec: JsonObject, key: str) -> Any:
    try:
        return api.post("/tasks", spec, key)
    except Unreachable as error:
        # the server may have accepted it although the response was lost
        raise Unreachable(f"{error.message}\nTo try again without submitting twice: --idempotency-key {key}") from None
    except KeyboardInterrupt:
        note("Stopped before the server answered; `tasks` shows whether it accepted the task.")
        raise SystemExit(int(Exit.DETACHED)) from None


def _input(text: str | None, file: BinaryIO | None) -> str | JsonObject:
    if (text is None) == (file is None):
        raise click.UsageError("give the task either as INPUT (- for stdin) or with --input-json FILE")
    try:
        if file is not None:
            value = read_json(file.read())
            if not isinstance(value, dict):
                raise click.UsageError("--input-json: the file must contain one JSON object")
            return value
        # UTF-8 whatever the locale is, so that a wrong encoding is refused and not guessed
        return sys.stdin.buffer.read().decode() if text == "-" else str(text)
    except UnicodeDecodeError:
        raise click.UsageError("the input is not valid UTF-8") from None
    except ValueError as error:
        raise click.UsageError(f"--input-json: not JSON: {error}") from None
