"""hand_in: ends the session with the other side's message, so that an agent with one prompt can be a subagent."""

from domain.agents.handler import HandlerReply, HandlerTurn, Speaker


async def hand_in(turn: HandlerTurn) -> HandlerReply:
    said = [message.text for message in turn.messages if message.speaker is Speaker.OTHER and message.text]
    if not said:
        return HandlerReply(text="Nothing was said.", ends="fail")
    return HandlerReply(text=said[-1], ends="stop")
