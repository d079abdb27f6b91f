"""The tool bash: a command in the sandbox."""

from pydantic import Field

from activities.sandbox import SandboxResult
from activities.tools.tool import Tool, ToolContext, ToolInput, ToolResult, clean
from domain.policy.rules import Subject, SubjectKind
from domain.sessions.session import Effect, EffectKind, preview


class Input(ToolInput):
    # an argument of a program may have 128 KiB: 30,000 characters of four bytes
    command: str = Field(min_length=1, max_length=30_000, description="What to run, as typed into a shell.")
    timeout_s: int = Field(60, ge=1, le=600, description="Seconds after which the command is stopped.")


async def run(input: Input, context: ToolContext) -> ToolResult:
    if "\0" in input.command:
        return ToolResult("The command contains a NUL character, which no program can receive.", failed=True)
    result = await context.sandbox.run(
        input.command,
        workspace=context.workspace,
        network=context.network,
        timeout_s=input.timeout_s,
        limits=context.limits,
        variables=context.variables,
    )
    if result.refusal:
        return ToolResult(result.refusal, failed=True)
    text = f"{clean(result.output).rstrip()}\n[{_ending(result, input.timeout_s)}; sandbox: {result.backend}]"
    return ToolResult(text.lstrip("\n"), failed=result.exit_code != 0)


def _ending(result: SandboxResult, timeout_s: int) -> str:
    if result.timed_out:
        return f"stopped after {timeout_s} s; nothing of it is running any more"
    if result.stopped:
        return f"stopped: {result.stopped}; nothing of it is running any more"
    if result.exit_code is None:
        return "stopped"
    if result.exit_code < 0 or result.exit_code > 128:
        signal = -result.exit_code if result.exit_code < 0 else result.exit_code - 128
        return f"exit code {result.exit_code}, ended by signal {signal}"
    return f"exit code {result.exit_code}"


TOOL = Tool(
    name="bash",
    description=(
        "Run a shell command in an isolated sandbox whose working directory is the workspace (/workspace). Files "
        "outside it are read-only or absent, there is no network unless the agent has one, and then only through the "
        "proxy in $HTTPS_PROXY. Whatever still runs when the command ends is stopped. Standard output and error come "
        "back together with the exit code."
    ),
    input=Input,
    run=run,
    effect=Effect.ONCE,
    kind=EffectKind.COMMAND,
    timeout_s=660,  # the longest command and the time to end it
    summary=lambda input: f"$ {preview(input.command, 120)}",
    subject=Subject(kind=SubjectKind.COMMAND, fields=("command",)),
)
