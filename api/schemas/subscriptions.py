"""What callers send about notifications."""

from typing import Annotated

from pydantic import Field, StringConstraints

from domain.notification import ChannelName, NotificationSubject
from domain.task import Strict


class NewSubscription(Strict):
    name: Annotated[str, StringConstraints(pattern=r"^[a-z0-9][a-z0-9._-]{0,62}$")]
    channel: ChannelName = Field(strict=False)
    target: Annotated[str, StringConstraints(min_length=1, max_length=2_048)] = Field(
        description="a URL, or for email an address"
    )
    events: list[Annotated[NotificationSubject, Field(strict=False)]] = Field(
        default_factory=lambda: list(NotificationSubject), min_length=1, max_length=20
    )
    every_task: bool = Field(default=True, description="false: only of tasks that name it in config.notify")
    subagents: bool = Field(default=False, description="true: also when a subagent has ended")
