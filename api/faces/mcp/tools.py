"""The tools: one for each agent that a caller can start, and those that watch, answer, continue and stop its tasks."""

from typing import Any, Literal

from mcp_types import Tool, ToolAnnotations, ToolExecution
from pydantic import BaseModel, Field

from api.faces.mcp.task_view import McpTask
from api.http.problems import finding
from domain.agents.definition import AgentDefinition, AgentName, Mode
from domain.errors import Invalid
from domain.json_object import JsonObject
from domain.sessions.session import Status
from domain.task import Id, Strict, Text
from store.keys import Right

WAIT_SECONDS = 60


class TaskArguments(Strict):
    task_id: Id


class WaitArguments(TaskArguments):
    seconds: int = Field(default=30, ge=1, le=WAIT_SECONDS, description="answers earlier if the task ends or asks")


class AnswerArguments(TaskArguments):
    request_id: Id | None = Field(default=None, description="default: the only one that the task waits for")
    answer: Any = Field(
        description='approvals and plans: {"approved": true or false, "notes": "…"}; else as answer_schema says'
    )


class MessageArguments(TaskArguments):
    message: Text | None = Field(default=None, description="required except to fire")
    mode: Literal["steer", "continue", "fire"] | None = Field(
        default=None,
        description="steer: to the running task; continue: a further task of its conversation; fire: deliver the "
        "outcomes of its subagents as a further task. Default: steer while it is running, else continue",
    )


class CancelArguments(TaskArguments):
    reason: str = Field(default="", max_length=2_000)


class ListArguments(Strict):
    status: Status | None = Field(default=None, strict=False)
    agent: AgentName | None = None
    limit: int = Field(default=20, ge=1, le=100)
    cursor: str | None = Field(default=None, max_length=200)


class McpTaskList(BaseModel):
    items: list[McpTask]
    next_cursor: str | None


READS = ToolAnnotations(read_only_hint=True, idempotent_hint=True, open_world_hint=False)
ACTS = ToolAnnotations(read_only_hint=False, destructive_hint=False, idempotent_hint=False, open_world_hint=True)
STOPS = ToolAnnotations(read_only_hint=False, destructive_hint=True, idempotent_hint=True, open_world_hint=False)

Arguments = TaskArguments | WaitArguments | AnswerArguments | MessageArguments | CancelArguments | ListArguments
# name -> its arguments, the rights to call it, its description
TASK_TOOLS: dict[str, tuple[type[Arguments], tuple[Right, ...], ToolAnnotations, str]] = {
    "task_status": (TaskArguments, (Right.READ,), READS, "Show a task: its status, progress, result and questions."),
    "task_wait": (
        WaitArguments,
        (Right.READ,),
        READS,
        f"Wait up to {WAIT_SECONDS} s until a task ends or asks something, then show it. Call it again if needed.",
    ),
    "task_answer": (
        AnswerArguments,
        (Right.ANSWER, Right.APPROVE, Right.SUPERVISE),
        ACTS,
        "Answer a question, or approve a call or a plan, for a person who decided so. Never decide in their place.",
    ),
    "task_message": (
        MessageArguments,
        (Right.SUBMIT, Right.SUPERVISE),
        ACTS,
        "Send a message to a running task, or continue the conversation of one that has ended.",
    ),
    "task_cancel": (CancelArguments, (Right.SUBMIT, Right.SUPERVISE), STOPS, "Cancel a task; it keeps what it has."),
    "task_list": (ListArguments, (Right.READ,), READS, "List tasks, the newest first."),
}

_CONFIG: JsonObject = {
    "max_cost_usd": {"type": "number", "exclusiveMinimum": 0, "description": "the task ends before it costs more"},
    "files": {
        "type": "array",
        "items": {"type": "string"},
        "maxItems": 100,
        "description": "ids of uploaded files or artifacts (errand://files/ID); they appear in the workspace",
    },
}


def task_tools(rights: frozenset[Right]) -> list[Tool]:
    """The tools that a caller with these rights may use."""
    return [
        Tool(
            name=name,
            description=description,
            input_schema=arguments.model_json_schema(),
            output_schema=(McpTaskList if name == "task_list" else McpTask).model_json_schema(mode="serialization"),
            annotations=annotations,
        )
        for name, (arguments, needed, annotations, description) in TASK_TOOLS.items()
        if Right.ADMIN in rights or rights.intersection(needed)
    ]


def is_startable(definition: AgentDefinition) -> bool:
    """Whether an agent is a tool: callers may start it, and no other tool has its name."""
    return definition.mode is not Mode.SUBAGENT and definition.name not in TASK_TOOLS


def agent_tool(definition: AgentDefinition) -> Tool:
    return Tool(
        name=definition.name,
        title=definition.title,
        description=f"{definition.description} Starts a durable task.".strip(),
        input_schema=_input_schema(definition),
        output_schema=McpTask.model_json_schema(mode="serialization"),
        annotations=ACTS,
        execution=ToolExecution(task_support="optional"),  # for hosts of the version that has tasks itself
    )


def _takes_object(definition: AgentDefinition) -> bool:
    return definition.input_schema is not None and definition.input_schema.get("type") == "object"


def _input_schema(definition: AgentDefinition) -> JsonObject:
    schema = definition.input_schema
    if schema is not None and _takes_object(definition):
        # a field of the agent's schema wins over ours of the same name, as in `task_of`
        return {**schema, "properties": {**_CONFIG, **schema.get("properties", {})}}
    text = schema or {"type": "string", "minLength": 1, "description": "the task"}
    properties = {"input": text, **_CONFIG}
    return {"type": "object", "properties": properties, "required": ["input"], "additionalProperties": False}


def task_of(definition: AgentDefinition, arguments: JsonObject) -> JsonObject:
    """The arguments of an agent's tool as the body of POST /tasks. Fields of the agent's schema are the agent's
    input."""
    schema = definition.input_schema or {}
    own = schema.get("properties", {}) if _takes_object(definition) else {"input": {}}
    given = {name: value for name, value in arguments.items() if name in own or name not in _CONFIG}
    ours = {name: value for name, value in arguments.items() if name not in given}
    body: JsonObject = {"agent": definition.name}
    if _takes_object(definition):
        body["input"] = given
    elif unknown := sorted(
        set(given) - set(own)
    ):  # other fields of a task, such as the agent, are not arguments of this tool
        problems = [
            finding(f"/{name[:100]}", "unknown_field", "there is no such argument", [*own, *_CONFIG])
            for name in unknown
        ]
        raise Invalid("An argument is not known.", errors=problems[:20])
    else:
        body |= given
    if "max_cost_usd" in ours:
        body["config"] = {"max_cost_usd": ours["max_cost_usd"]}
    if "files" in ours:
        body["context"] = {"files": ours["files"]}
    return body
