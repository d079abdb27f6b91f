"""The answer to a request without a script: it explains the stand-in and how to connect a real model."""

from offline.markers import Marker
from offline.reply import Replies, Reply
from offline.scripts.demo import counted
from offline.transcript import Transcript


def replies(transcript: Transcript, marker: Marker) -> Replies:
    yield Reply(text=honest_answer(transcript))


def honest_answer(transcript: Transcript) -> str:
    asked = " ".join(transcript.request.split())
    seen = [f'your request, "{asked[:200]}{"…" if len(asked) > 200 else ""}"']
    seen.append(f"{len(transcript.tools)} tools" if transcript.tools else "no tools")
    if transcript.notes:
        seen.append(f"{counted(len(transcript.notes), 'further message')}")
    return (
        "This is the offline stand-in, not a language model: it answers from scripts, and none of them knows "
        f"this request. It saw {', '.join(seen)}.\n\n"
        "Requests it can really work on: ask the assistant for a program that computes primes, squares or Fibonacci "
        "numbers, for a look around the workspace, or to ask the researcher something; give the researcher a question "
        "about files in the workspace; give the code-reviewer some code; give the orchestrator a goal.\n\n"
        "To connect a real model, set ANTHROPIC_API_KEY (and ANTHROPIC_BASE_URL for another endpoint with the "
        "Anthropic Messages API) and start again."
    )
