"""/tasks/{id}/rerun: run a task again from one of its steps, with changes."""

from typing import Annotated

from errand import models
from fastapi import APIRouter, Depends, Response

from api.http.auth import Submitter
from api.http.body import accepts_json, check_input_length, json_body
from api.http.idempotency import IdempotencyKey, Key
from api.http.lookup import check_kept, own_session
from api.openapi import BODY, problems, ref, request_body
from api.reruns import accept as rerun
from api.schemas.reruns import RerunBody

router = APIRouter(tags=["tasks"], dependencies=[Depends(accepts_json)])

_EXAMPLES = {
    "prompt": {
        "summary": "From the third step, with other instructions",
        "value": {"from_step": 3, "prompt": "Answer in one sentence."},
    },
    "result": {
        "summary": "As if the tool had failed",
        "value": {"from_step": 2, "tool_results": [{"index": 0, "text": "No such file", "failed": True}]},
    },
    "rule": {
        "summary": "What would this rule have stopped?",
        "value": {"recorded": True, "permissions": [{"permission": "bash", "pattern": "rm *", "action": "deny"}]},
    },
}


@router.post(
    "/tasks/{task_id}/rerun",
    status_code=202,
    response_model=models.TaskHandle,
    responses=problems(404, 409, 410, *BODY),
    openapi_extra=request_body({"application/json": {"schema": ref(RerunBody), "examples": _EXAMPLES}}, required=False),
    summary="Run a task again from one of its steps",
)
async def rerun_task(
    call: Submitter,
    task_id: str,
    body: Annotated[RerunBody, json_body(RerunBody, optional=True, check_value=check_input_length)],
    idempotency_key: Key = None,
) -> Response:
    """Creates a task in its own conversation, with the messages and files that the original had before that step. The
    original does not change. With `recorded` no model is called and no tool runs: responses and results are the
    original's, and only rules and limits are new."""
    source = await own_session(call, task_id)
    check_kept(source)
    key = IdempotencyKey.of(call, f"POST /tasks/{task_id}/rerun", body, idempotency_key)
    answer = await rerun.rerun(call, source, body, key)
    return Response(answer.body, 202, answer.headers, media_type="application/json")
