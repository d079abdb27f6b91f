"""The channels, one file each. A new one is a file, a line here and a member of `ChannelName`."""

from functools import partial

from activities.egress import Fetcher
from activities.notifications.channels.channel import Channel, post
from activities.notifications.channels.email import Email, MailServer
from activities.notifications.channels.push import Push
from activities.notifications.channels.slack import Slack
from activities.notifications.channels.webhook import Webhook
from connectors.connector import SenderPorts
from domain.notifications import ChannelName


def channels(fetcher: Fetcher, mail: MailServer | None) -> dict[ChannelName, Channel]:
    return {
        ChannelName.WEBHOOK: Webhook(fetcher),
        ChannelName.OPENAI: Webhook(fetcher),  # `deliver` gives it another body
        ChannelName.SLACK: Slack(fetcher),
        ChannelName.EMAIL: Email(mail),
        ChannelName.PUSH: Push(fetcher),
    }


def ports(fetcher: Fetcher, mail: MailServer | None, slack_url: str) -> SenderPorts:
    """The senders for connectors: they use the same guarded client and the same mail server."""
    return SenderPorts(post=partial(post, fetcher), mail=Email(mail).mail, slack_url=slack_url)
