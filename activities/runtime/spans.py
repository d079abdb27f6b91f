"""Additional attributes for the spans of model and tool calls. Without telemetry this does nothing."""

from opentelemetry import trace

from domain.sessions.session import Usage
from domain.sessions.step import ModelCall, ToolOutcome, ToolRequest


def model_called(call: ModelCall, usage: Usage) -> None:
    """Set attributes on the activity's span; the model's client has its own span inside it."""
    trace.get_current_span().set_attributes(
        {
            "gen_ai.operation.name": "invoke_agent",
            "gen_ai.agent.name": call.agent.name,
            "gen_ai.agent.version": str(call.agent.version),
            "gen_ai.conversation.id": call.ref.conversation_id,
            "errand.session.id": call.ref.session_id,
            "errand.step": call.step,
            "errand.cost_usd": usage.cost_usd or 0.0,
        }
    )


def tool_called(request: ToolRequest, outcome: ToolOutcome) -> ToolOutcome:
    trace.get_current_span().set_attributes(
        {
            "gen_ai.operation.name": "execute_tool",
            "gen_ai.tool.name": request.name,
            "gen_ai.tool.call.id": f"{request.node}:{request.index}",
            "gen_ai.conversation.id": request.ref.conversation_id,
            "errand.session.id": request.ref.session_id,
            "errand.step": request.step,
            "errand.tool.state": outcome.state,
        }
    )
    return outcome
