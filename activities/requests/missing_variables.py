"""Missing variables: one request asks for all values that a session needs before it can begin."""

from domain.sessions.input_request import InputRequest, RequestStatus, SettledRequest
from domain.sessions.request_writes import ShownRequest, SpentSoFar

LONGEST = 10_000  # characters of a value


def question(missing: dict[str, str], spent: SpentSoFar) -> ShownRequest:
    named = "; ".join(f"{name} ({description})" for name, description in missing.items())
    schema = {
        "type": "object",
        "properties": {
            name: {"type": "string", "minLength": 1, "maxLength": LONGEST, "description": description}
            for name, description in missing.items()
        },
        "required": list(missing),
        "additionalProperties": False,
    }
    return ShownRequest(
        question=f"Before it can begin, this task needs: {named}",
        details={"variables": missing, "so_far": spent.model_dump()},
        answer_schema=schema,
    )


def settled(request: InputRequest, *, cancel: bool) -> SettledRequest:
    """The result for the agent. The values stay in the row; the agent only learns which ones it will not get."""
    if request.status is RequestStatus.ANSWERED:
        return SettledRequest(status=request.status, approved=True)
    names = ", ".join(request.details["variables"])
    note = f"Nobody gave these variables in time: {names}. Do what is possible without them, and say what is not."
    return SettledRequest(status=request.status, cancel=cancel, note=note)
