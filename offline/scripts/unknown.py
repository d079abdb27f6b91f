"""The answer to a prompt that no script knows: honest about what is answering, and how to get a real model."""

from offline.conversation import Conversation
from offline.markers import Marker
from offline.reply import Reply, Story


def tell(conversation: Conversation, marker: Marker) -> Story:
    yield Reply(text=honest_answer(conversation))


def honest_answer(conversation: Conversation) -> str:
    asked = " ".join(conversation.request.split())
    seen = [f'your request, "{asked[:200]}{"…" if len(asked) > 200 else ""}"']
    seen.append(f"{len(conversation.tools)} tools" if conversation.tools else "no tools")
    if conversation.notes:
        seen.append(f"{len(conversation.notes)} further messages")
    return (
        "This is the offline stand-in speaking, not a language model: it answers from scripts, and none of them knows "
        f"this request. It saw {', '.join(seen)}.\n\n"
        "Requests it can really work on: ask the assistant for a program that computes primes, squares or Fibonacci "
        "numbers, for a look around the workspace, or to ask the researcher something; give the researcher a question "
        "about files in the workspace; give the code-reviewer some code; give the orchestrator a goal.\n\n"
        "To connect a real model, set ANTHROPIC_API_KEY (and ANTHROPIC_BASE_URL for another endpoint that speaks the "
        "Anthropic Messages API) and start again."
    )
