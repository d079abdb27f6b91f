"""E-mail through the operator's own SMTP server."""

import asyncio
import smtplib
import ssl
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from email.message import EmailMessage
from email.utils import formatdate

from activities.notifications.channels.channel import Envelope
from domain.notifications import SendError

TIMEOUT_S = 20.0  # of each exchange
TOTAL_S = 60.0
# A slow mail server must not take the threads that everything else runs in.
_threads = ThreadPoolExecutor(8, thread_name_prefix="mail")


@dataclass(frozen=True)
class MailServer:
    host: str
    port: int
    sender: str
    user: str | None = None
    password: str | None = field(default=None, repr=False)
    tls: str = "starttls"  # starttls | tls | none


class Email:
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
