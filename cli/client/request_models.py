"""Input requests as the command line reads them."""

from typing import Any

from cli.client.response import ResponseModel
from domain.sessions.input_request import ApprovedFile, MoreFiles


class SpentInfo(ResponseModel):
    steps: int = 0
    tokens: int = 0
    cost_usd: float | None = None


class MatchedRule(ResponseModel):
    """The rule that requires the approval."""

    action: str
    permission: str
    pattern: str


class RequestDetails(ResponseModel):
    """Details for the decision; each kind of request has some of them."""

    plan: list[str] = []
    tool: str = ""
    always: list[str] = []  # patterns of calls like this one
    arguments: dict[str, Any] = {}
    diff: str | None = None
    files: list[ApprovedFile] = []  # files that a command names, with their present content
    more_files: MoreFiles | None = None
    note: str | None = None
    rule: MatchedRule | None = None
    variables: dict[str, str] = {}
    options: list[str] = []
    so_far: SpentInfo = SpentInfo()


class RequestInfo(ResponseModel):
    """An input request: a question, an approval, a result, variables."""

    id: str
    session_id: str
    kind: str
    question: str
    status: str
    details: RequestDetails
    answer_schema: dict[str, Any] | None = None
    created_at: str
    deadline: str
    on_expiry: str
