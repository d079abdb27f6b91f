"""Credentials: secrets that requests to certain hosts get on their way out of a sandbox, which never holds them."""

import base64
import contextlib
import re
from enum import StrEnum
from typing import Annotated, Self
from urllib.parse import urlsplit

from pydantic import AfterValidator, BaseModel, Field, StringConstraints, model_validator
from pydantic_core import PydanticCustomError

from domain.frozen import Frozen
from domain.json_object import Stored

CredentialName = Annotated[str, StringConstraints(pattern=r"^[a-z0-9][a-z0-9-]{0,62}$")]


def check_host(address: str) -> str:
    """Refuse a host, or an address, that cannot be one."""
    with contextlib.suppress(ValueError):
        if _place(address)[1]:
            return address
    raise PydanticCustomError("host", "this is not a host")


# a host, with a port if it is not 443; without TLS only where the operator has named host and port
_HOST = r"^(http://)?(?:[A-Za-z0-9.-]{1,253}|\[[0-9A-Fa-f:.]{2,45}\])(?::[0-9]{1,5})?$"


def _check_form(host: str) -> str:
    return check_host(host if re.fullmatch(_HOST, host) else "")


CredentialHost = Annotated[str, AfterValidator(_check_form), Field(json_schema_extra={"pattern": _HOST})]
_GIT_ENDS = ("/info/refs", "/git-upload-pack", "/git-receive-pack")


class Access(StrEnum):
    READ = "read"
    WRITE = "write"


class CredentialRules(BaseModel, extra="forbid", strict=True):
    hosts: list[CredentialHost] = Field(
        default_factory=list, max_length=20, description="the hosts that get it; none: it is given as a variable alone"
    )
    username: Annotated[str, StringConstraints(pattern=r"^[!-9;-~]{1,200}$")] = Field(
        default="x-access-token", description="that git sends with it"
    )
    access: Access = Field(
        default=Access.READ, strict=False, description="read: only requests that change nothing, and git's fetch"
    )


class CredentialSpec(CredentialRules):
    """The body of PUT /credentials/{name}."""

    secret: Annotated[str, StringConstraints(pattern=r"^[!-~]+$", min_length=8, max_length=10_000)] = Field(
        description="a token; it is never shown again"
    )

    @model_validator(mode="after")
    def _hidden(self) -> Self:
        if self.secret in (self.username, *self.hosts):
            raise PydanticCustomError("secret", "the secret is the user name or a host")
        return self

    def rules(self) -> CredentialRules:
        return CredentialRules(**self.model_dump(exclude={"secret"}))


# Whose it is: three owners may have one of the same name, and the nearest counts.

TENANT = ""


def name_user(created_by: str) -> str:
    """The owner of those that only the tasks of one key may use."""
    return f"user/{created_by}"


def name_task(conversation_id: str) -> str:
    """The owner of those that came with a task, and are removed at its end."""
    return f"task/{conversation_id}"


class OwnedRules(Frozen):
    """A credential without its secret."""

    owner: str = TENANT
    name: str
    rules: Stored[CredentialRules]

    @property
    def place(self) -> str:
        """Where it is: what is sealed for one place cannot be opened at another."""
        return f"{self.owner}/{self.name}"

    @property
    def may_be_read(self) -> bool:
        """Whether an environment may give it to commands as a variable. Who is no administrator agrees to that by
        binding it to no host."""
        return self.owner == TENANT or not self.rules.hosts


class SealedCredential(Frozen):
    """A row of the table, without the tenant."""

    owner: str
    name: str
    rules: str  # JSON
    secret: str


class Credential(OwnedRules):
    """An open one, in the memory of a worker for as long as it is used. Its repr does not show the secret."""

    secret: str = Field(repr=False)

    def header(self, path: str) -> str:
        """The header Authorization for a path: git's requests name the user, others only the token."""
        if not path.partition("?")[0].endswith(_GIT_ENDS):
            return f"Bearer {self.secret}"
        return "Basic " + base64.b64encode(f"{self.rules.username}:{self.secret}".encode()).decode()

    @property
    def texts(self) -> list[str]:
        """What a host could send back: the secret, and the form in which git sends it."""
        return [self.secret, self.header(_GIT_ENDS[0]).removeprefix("Basic ")]

    def refuses(self, method: str, path: str) -> bool:
        """Whether a request may change something and the credential may not."""
        if self.rules.access is Access.WRITE:
            return False
        place, _, query = path.partition("?")
        if method in ("GET", "HEAD"):
            return "git-receive-pack" in query
        return not (method == "POST" and place.endswith("/git-upload-pack"))


_PORTS = {"http": 80, "https": 443}


def _place(host: str) -> tuple[str, str | None, int]:
    parsed = urlsplit(host if "://" in host else f"https://{host}")
    return parsed.scheme, parsed.hostname, parsed.port or _PORTS[parsed.scheme]


def is_bound(rules: CredentialRules, url: str) -> bool:
    """Whether requests to an address get it."""
    return any(_place(host) == _place(url) for host in rules.hosts)


def addresses_of(rules: CredentialRules) -> list[str]:
    """The addresses whose requests get it, as git and other programs write them."""
    return [host if host.startswith("http://") else f"https://{host}" for host in rules.hosts]
