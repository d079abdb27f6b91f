"""Maps the end of a session and its usage to those of a response."""

from api.faces.responses.objects import IncompleteDetails, InputDetails, ResponseError, ResponseUsage
from domain.events import Ended
from domain.json_object import JsonObject
from domain.sessions.session import Reason, Status, Usage

_TOKENS = frozenset({Reason.TOKEN_BUDGET, Reason.COST_BUDGET, Reason.TREE_BUDGET})
_STEPS = frozenset({Reason.STEP_LIMIT, Reason.TURN_LIMIT, Reason.TOOL_LIMIT})


def ending(ended: Ended) -> tuple[str, JsonObject]:
    """The type of the last event, and the fields of the response that it changes."""
    if ended.status is Status.COMPLETED:
        return "response.completed", {"status": "completed"}
    if ended.status is Status.CANCELLED:
        return "response.incomplete", {"status": "cancelled"}  # the protocol has no event for this
    if ended.reason in _TOKENS | _STEPS:
        reason = "max_output_tokens" if ended.reason in _TOKENS else "max_messages"
        details = IncompleteDetails.model_validate({"reason": reason})
        return "response.incomplete", {"status": "incomplete", "incomplete_details": details}
    refused = ended.reason in (Reason.POLICY_DENIED, Reason.NEEDS_INPUT)
    message = f"{ended.reason}: {ended.error}" if ended.error else f"The task ended early: {ended.reason}."
    error = ResponseError(code="invalid_prompt" if refused else "server_error", message=message)
    return "response.failed", {"status": "failed", "error": error}


def usage_of(usage: Usage) -> ResponseUsage:
    return ResponseUsage(
        # OpenAI counts cached tokens as input, Anthropic does not
        input_tokens=usage.input_tokens + usage.cache_read_tokens + usage.cache_write_tokens,
        input_tokens_details=InputDetails(
            cached_tokens=usage.cache_read_tokens, cache_write_tokens=usage.cache_write_tokens
        ),
        output_tokens=usage.output_tokens,
        total_tokens=usage.tokens,
    )
