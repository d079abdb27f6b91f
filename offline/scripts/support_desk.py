"""The support desk: its first agent hands the conversation over, and the agent that takes over answers."""

import re

from offline.markers import Marker
from offline.reply import Replies, Reply, ToolUse
from offline.scripts.demo import question_of, with_notes
from offline.transcript import Transcript

_SUBJECTS = {
    "billing": re.compile(r"invoice|bill|pay|refund|charge|money|price", re.IGNORECASE),
    "technician": re.compile(r"broken|error|crash|not work|does not|cannot|fail|slow", re.IGNORECASE),
}
_ANSWERS = {
    "billing": "This is billing. I have your question: {}. You get a corrected invoice within two days.",
    "technician": "This is the technician. I have your question: {}. Please restart it once and tell me what you see.",
}


def replies(transcript: Transcript, marker: Marker) -> Replies:
    """One exchange; the one of the three agents that has the conversation now gives each reply."""
    question, agent = question_of(transcript), transcript.agent
    subject = next((name for name, pattern in _SUBJECTS.items() if pattern.search(question)), None)
    came_from_desk = any(result.name in _SUBJECTS for made in transcript.rounds() for result in made)
    if subject is not None and (came_from_desk or agent != subject):
        yield Reply(
            text=f"This is for {subject}.", calls=(ToolUse(subject, {"message": f"The customer asks: {question}"}),)
        )
        agent = subject
    answer = _ANSWERS.get(agent or "", "We are here from 9 to 17. Is it about an invoice, or does something not work?")
    yield Reply(text=with_notes(answer.format(question.rstrip(".?!")), transcript))
