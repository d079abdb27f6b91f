"""Channels: the ways to notify somebody. A new one is a function, a line in `build_channels` and a member of
`ChannelName`."""

import asyncio
import json
import smtplib
import ssl
from collections.abc import Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from email.header import Header
from email.message import EmailMessage
from email.utils import formatdate
from functools import partial
from html import escape

from activities.egress import Fetched, Fetcher, FetchError
from connectors.connector import SenderPorts
from domain.notifications import ChannelName, Notice, SendError, signed_headers

TIMEOUT_S = 20.0  # of each exchange
TOTAL_S = 60.0
# A slow mail server must not take the threads that everything else runs in.
_threads = ThreadPoolExecutor(8, thread_name_prefix="mail")


@dataclass(frozen=True)
class Envelope:
    """One notification for one address. Its id and body are equal in every attempt."""

    id: str
    target: str = field(repr=False)
    body: bytes = field(repr=False)
    signing: list[str] = field(default_factory=list, repr=False)

    @property
    def notice(self) -> Notice:
        return Notice.model_validate_json(self.body)


# sends, and returns once the receiver has accepted; raises SendError otherwise
Channel = Callable[[Envelope], Awaitable[None]]


@dataclass(frozen=True)
class MailServer:
    host: str
    port: int
    sender: str
    user: str | None = None
    password: str | None = field(default=None, repr=False)
    tls: str = "starttls"  # starttls | tls | none


def build_channels(fetcher: Fetcher, mail: MailServer | None) -> dict[ChannelName, Channel]:
    webhook = partial(send_webhook, fetcher)
    return {
        ChannelName.WEBHOOK: webhook,
        ChannelName.OPENAI: webhook,  # `deliver` gives it another body
        ChannelName.SLACK: partial(send_slack, fetcher),
        ChannelName.EMAIL: Email(mail).send,
        ChannelName.PUSH: partial(send_push, fetcher),
    }


def build_ports(fetcher: Fetcher, mail: MailServer | None, slack_url: str) -> SenderPorts:
    """The senders for connectors: they use the same guarded client and the same mail server."""
    return SenderPorts(post=partial(post_accepted, fetcher), mail=Email(mail).mail, slack_url=slack_url)


async def send_webhook(fetcher: Fetcher, envelope: Envelope) -> None:
    """The Standard Webhooks convention: a stable id, a time per attempt, and a signature for each secret."""
    headers = signed_headers(envelope.signing, envelope.id, envelope.body)
    await post_accepted(fetcher, envelope.target, headers, envelope.body)


async def send_slack(fetcher: Fetcher, envelope: Envelope) -> None:
    """Slack, and services with the same interface: an incoming webhook that takes a text."""
    notice = envelope.notice
    # so that text of an agent cannot become links or mentions
    text = f"*{escape(notice.subject, quote=False)}*\n{escape(notice.text, quote=False)}"
    body = json.dumps({"text": text, "unfurl_links": False}).encode()
    await post_accepted(fetcher, envelope.target, {"content-type": "application/json"}, body)


async def send_push(fetcher: Fetcher, envelope: Envelope) -> None:
    """Push services with a plain HTTP interface such as ntfy: the text is the body, the title a header."""
    notice = envelope.notice
    subject = notice.subject
    headers = {
        "content-type": "text/plain; charset=utf-8",
        "title": subject if subject.isascii() else Header(subject, "utf-8", maxlinelen=10_000).encode(),
    }
    await post_accepted(fetcher, envelope.target, headers, notice.text.encode())


class Email:
    """E-mail through the operator's own SMTP server."""

    def __init__(self, server: MailServer | None) -> None:
        self._server = server

    async def send(self, envelope: Envelope) -> None:
        notice = envelope.notice
        await self.mail(envelope.id, envelope.target, notice.subject, notice.text)

    async def mail(self, message_id: str, recipient: str, subject: str, text: str) -> None:
        if self._server is None:
            raise SendError("No mail server is set (ERRAND_SMTP_HOST).")
        try:
            message = _message(self._server, message_id, recipient, subject, text)
            async with asyncio.timeout(TOTAL_S):
                await asyncio.get_running_loop().run_in_executor(_threads, _send, self._server, message)
        except ValueError:
            raise SendError("The recipient is not an e-mail address.", gone=True) from None
        except smtplib.SMTPRecipientsRefused as error:
            codes = sorted({code for code, _ in error.recipients.values()})
            raise SendError(f"The mail server refused the recipient ({codes[0]}).") from None
        except smtplib.SMTPResponseException as error:
            raise SendError(f"The mail server refused ({error.smtp_code}).") from None
        except (smtplib.SMTPException, OSError) as error:
            raise SendError(f"The mail server did not answer properly ({type(error).__name__}).") from None


def _message(server: MailServer, message_id: str, recipient: str, subject: str, text: str) -> EmailMessage:
    message = EmailMessage()
    message["From"] = server.sender
    message["To"] = recipient
    message["Subject"] = " ".join(subject.split())
    message["Date"] = formatdate()
    message["Message-ID"] = f"<{message_id}@errand>"  # equal in every attempt, so that a mailbox can drop duplicates
    message["Auto-Submitted"] = "auto-generated"
    message.set_content(text + "\n")
    return message


def _send(server: MailServer, message: EmailMessage) -> None:
    context = ssl.create_default_context()
    if server.tls == "tls":
        connection: smtplib.SMTP = smtplib.SMTP_SSL(server.host, server.port, timeout=TIMEOUT_S, context=context)
    else:
        connection = smtplib.SMTP(server.host, server.port, timeout=TIMEOUT_S)
    with connection as smtp:
        if server.tls == "starttls":
            smtp.starttls(context=context)
        if server.user:
            smtp.login(server.user, server.password or "")
        smtp.send_message(message)


# what they send with


async def post_accepted(fetcher: Fetcher, url: str, headers: dict[str, str], content: bytes) -> bytes:
    """Send a POST, and return the body of the answer; only 2xx counts as accepted. A redirect is a failure: a receiver
    that moved needs a new subscription."""
    try:
        answer = await fetcher.send("POST", url, headers, content)
    except FetchError as error:
        raise SendError(str(error)) from None
    if not 200 <= answer.status < 300:
        gone = answer.status == 410
        raise SendError(f"It answered {answer.status}.", gone=gone, retry_after_s=_retry_after(answer))
    return answer.body


def _retry_after(answer: Fetched) -> float:
    given = answer.headers.get("retry-after", "").strip()
    return float(given) if given.isascii() and given.isdecimal() and len(given) < 9 else 0.0
