"""Slack: events and buttons arrive through the Events API and interactivity, answers leave through the Web API."""

import json
from html import escape
from urllib.parse import parse_qs

from pydantic import ValidationError

from connectors.connector import Outgoing, Received, SenderPorts, SignedRequest
from connectors.webhook import unreadable
from domain.channels import REPLY, ChannelReply, ConnectorSecrets, IncomingAnswer, IncomingMessage
from domain.errors import Invalid
from domain.json_object import JsonObject
from domain.notifications import SendError
from domain.signatures import check_slack

MAX_TEXT = 39_000  # Slack cuts a message at 40,000 characters
MAX_BLOCK = 2_900  # characters of a text block
SPOKEN = (None, "file_share", "thread_broadcast")  # the subtypes of messages that a person wrote
UNREAD = "Files of this message, which are not read here"
MAX_NAMES, MAX_NAME = 20, 200  # of the files that are named, and characters of a name
APPROVALS = ("tool_approval", "plan_approval")
BUTTONS = {"errand_approve": ("Approve", "primary", True), "errand_deny": ("Deny", "danger", False)}
# errors that would come again; any other may pass, and is tried again
GONE = ("account_inactive", "channel_not_found", "invalid_auth", "is_archived", "not_in_channel", "token_revoked")


class SlackConnector:
    def receive(self, request: SignedRequest, secrets: ConnectorSecrets) -> Received:
        check_slack(secrets.signing, request.headers, request.body, request.now)
        try:
            if request.headers.get("content-type", "").startswith("application/x-www-form-urlencoded"):
                return _read_buttons(json.loads(parse_qs(request.body.decode())["payload"][0]))
            return _event(json.loads(request.body))
        except ValidationError as error:
            raise unreadable(error) from None
        except (ValueError, KeyError, IndexError, TypeError, AttributeError, RecursionError):
            raise Invalid("This is not a request of Slack's Events API or interactivity.") from None

    async def send(self, outgoing: Outgoing, ports: SenderPorts) -> None:
        headers = {
            "content-type": "application/json; charset=utf-8",
            "authorization": f"Bearer {outgoing.secrets.token}",
        }
        answer = await ports.post(f"{ports.slack_url.rstrip('/')}/chat.postMessage", headers, _message(outgoing))
        try:
            said = json.loads(answer)
            accepted, reason = said["ok"] is True, str(said.get("error", "unknown"))[:80]
        except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
            raise SendError("Slack did not answer properly.") from None
        if not accepted:
            raise SendError(f"Slack refused ({reason}).", gone=reason in GONE)


def _event(payload: JsonObject) -> Received:
    """One message. Its time stamp identifies it, so that neither a retry of Slack nor a second event about the same
    message is answered again. Messages of bots, including our own, are left out. Files are not read, and the text says
    so."""
    if payload["type"] == "url_verification":
        return Received(response=str(payload["challenge"]))
    event = payload["event"]
    spoken = event["type"] in ("message", "app_mention") and event.get("subtype") in SPOKEN
    if not spoken or event.get("bot_id"):
        return Received()
    text = event.get("text") or ""
    if names := [str(file.get("name") or "unnamed")[:MAX_NAME] for file in event.get("files") or []]:
        text = f"{text}\n\n({UNREAD}: {', '.join(names[:MAX_NAMES])})".strip()
    if not str(text).strip():
        return Received()
    message = IncomingMessage(
        channel_id=event["channel"],
        user_id=event["user"],
        text=text,
        message_id="/".join((event["channel"], event["ts"])),
        thread=event.get("thread_ts") or event["ts"],
    )
    return Received([message])


def _read_buttons(payload: JsonObject) -> Received:
    found = [
        IncomingAnswer(
            channel_id=payload["channel"]["id"],
            user_id=payload["user"]["id"],
            request_id=action["value"],
            value={"approved": BUTTONS[action["action_id"]][2]},
        )
        for action in payload["actions"]
        if action.get("action_id") in BUTTONS
    ]
    return Received(answers=found)


def _message(outgoing: Outgoing) -> bytes:
    reply = outgoing.reply
    text = escape(reply.data.text, quote=False)  # an agent's text cannot become links or mentions
    message = {
        "channel": reply.data.channel_id,
        "thread_ts": reply.data.thread,
        "text": text[:MAX_TEXT],
        "blocks": _buttons(reply, text),
        "metadata": {"event_type": "errand_reply", "event_payload": {"id": outgoing.id}},
        "unfurl_links": False,
    }
    return json.dumps({name: value for name, value in message.items() if value is not None}).encode()


def _buttons(reply: ChannelReply, shown: str) -> list[JsonObject] | None:
    if reply.type == REPLY or reply.data.kind not in APPROVALS:
        return None
    text = {"type": "section", "text": {"type": "mrkdwn", "text": shown[:MAX_BLOCK]}}
    buttons = [
        {
            "type": "button",
            "action_id": action,
            "style": style,
            "text": {"type": "plain_text", "text": label},
            "value": reply.data.request_id,
        }
        for action, (label, style, _) in BUTTONS.items()
    ]
    return [text, {"type": "actions", "elements": buttons}]
