"""The tools push_branch and open_pull_request: a task's commits go to the repository of its environment."""

from pydantic import Field

from activities.egress import FetchError
from activities.pull_requests import ForgeError
from activities.tools.tool import ArtifactFile, Tool, ToolContext, ToolInput, ToolResult, clean
from activities.trees import TreeError
from domain.policy.rules import SubjectKind
from domain.sessions.session import Effect, preview
from domain.task import FolderName

NO_REPOSITORY = "This task has no environment, so there is no repository to which it could go."


class PushInput(ToolInput):
    repository: FolderName | None = Field(None, description="If the task has several: the folder of one.")

    @property
    def name(self) -> str:
        return f" of {self.repository}" if self.repository else ""


class PullRequestInput(PushInput):
    title: str = Field(min_length=1, max_length=200, description="What it changes, in one line.")
    body: str = Field("", max_length=20_000, description="Why, and how it was checked; Markdown.")
    base: str | None = Field(
        None,
        pattern=r"^[A-Za-z0-9_][A-Za-z0-9_./+-]{0,199}$",
        description="The branch into which it should go; without it the one that the task began with.",
    )


async def push(input: PushInput, context: ToolContext) -> ToolResult:
    if context.repository is None:
        return ToolResult(NO_REPOSITORY, failed=True)
    try:
        branch, commit = await context.repository.push(input.repository)
    except (TreeError, ForgeError) as error:
        return ToolResult(f"Nothing was pushed: {error}", failed=True)
    return ToolResult(f"Pushed the commit {commit[:12]} as the branch {branch}.")


async def open_pull_request(input: PullRequestInput, context: ToolContext) -> ToolResult:
    if context.repository is None:
        return ToolResult(NO_REPOSITORY, failed=True)
    try:
        title, body = clean(input.title), clean(input.body)
        found = await context.repository.open_pull_request(input.repository, title, body, input.base)
    except ForgeError as error:
        return ToolResult(str(error), failed=True)
    except FetchError as error:
        return ToolResult(f"{error} Call it again: one that exists is found.", failed=True, unknown=True)
    how = "Opened" if found.made else "There is already"
    name = "-".join(filter(None, ["pull-request", input.repository, str(found.number)]))
    about = preview(input.title, 200)
    artifact = ArtifactFile(name, f"{found.url}\n".encode(), "text/uri-list", "pull_request", about, found.url)
    return ToolResult(f"{how} the pull request {found.number}: {found.url}", artifacts=[artifact])


PUSH = Tool(
    name="push_branch",
    description=(
        "Push what you have committed to the repository of this task, as the task's own branch. Commit first. If the "
        "branch has commits that you do not have, fetch and rebase before you push again."
    ),
    input=PushInput,
    run=push,
    effect=Effect.ONCE,
    approval=True,
    touches=(SubjectKind.HOST,),
    timeout_s=180,
    summary=lambda input: f"push the branch of this task{input.name}",
)

OPEN = Tool(
    name="open_pull_request",
    description=(
        "Propose the branch that you have pushed as a pull request. There is one for each task "
        "and repository: if it is open already, you get its address. Comments and failed checks may reach you later as "
        "messages."
    ),
    input=PullRequestInput,
    run=open_pull_request,
    effect=Effect.ONCE,
    approval=True,
    touches=(SubjectKind.HOST,),
    summary=lambda input: f"open a pull request{input.name}: {preview(input.title, 120)}",
)

TOOLS = (PUSH, OPEN)
