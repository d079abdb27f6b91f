"""E-mail: an answer is sent by SMTP to the person who wrote, once, and is retried while the server refuses it."""

from domain.ids import new_id
from tests.behaviour.channels.people import Service
from tests.behaviour.notifications.receivers import smtp_receiver


async def test_an_answer_is_mailed_once_to_the_person_that_wrote(service: Service) -> None:
    name = f"mail-{new_id()}"
    made = await service.put(name, kind="email")
    given = {"connector": name, "channel": "support"}
    async with smtp_receiver(service.stack.settings.smtp_port) as mail:
        mail.refuse.append("451 try again later")
        said = await service.say(
            "[[script:say text=.hidden]]", user="ann@example.org", thread="Re: my order", message_id="m1", **given
        )
        [message] = await mail.got(1)
        assert mail.recipients == ["ann@example.org"] and mail.attempts == 2
        assert (message["To"], message["Subject"], message["Auto-Submitted"]) == (
            *("ann@example.org", "Re: my order", "auto-generated"),
        )
        assert message["Message-ID"] and message.get_content().rstrip() == ".hidden"  # the leading dot is not lost
        again = await service.say("[[script:say text=x]]", user="ann@example.org", message_id="m1", **given)
        assert again["duplicate"] and again["session_id"] == said["session_id"]
        await service.say("[[script:say text=two]]", user="bob@example.org", **given)
        _, second = await mail.got(2)
        assert (second["To"], second["Subject"]) == ("bob@example.org", "Your message")
        assert second["Message-ID"] != message["Message-ID"]
        for user in ("ann", "a@b@c", "ann@example.org,eve@example.org", "Ann <ann@example.org>"):
            refused = await service.post("x", user=user, **given)
            assert (refused.status_code, refused.json()["errors"][0]["pointer"]) == (422, "/user_id"), user
        injected = await service.post("x", user="ann@example.org", thread="Hi\r\nBcc: eve@example.org", **given)
        assert injected.status_code == 422
    assert len(mail.messages) == 2
    # an e-mail connector receives no messages
    assert (await service.stack.http.post(made["hook"], json={})).status_code == 404
