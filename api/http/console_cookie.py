"""The console's sign-in cookie: an encrypted reference to a key, which expires after a while.

It holds the digest by which the database finds the key, not the key's secret. No process keeps state: when a key is
revoked, or a cookie signed out, the database says so to all of them.
"""

import base64
import binascii
import time
from collections.abc import Mapping
from http.cookies import CookieError, SimpleCookie
from urllib.parse import urlsplit

from pydantic import BaseModel, ValidationError

from domain.errors import NotAllowed
from domain.ids import new_id
from domain.sealed_text import is_sealed
from domain.sealing import KeyRing, SealingError

NAME = "errand_console"
LOCAL = "local"  # instead of a key's id: the token of the account that runs the server
SECONDS = 12 * 3_600
# binds the encryption, so that another encrypted value of this server is no cookie
_CONTEXT = "console cookie"
_LONGEST = 1_000
_SAFE = frozenset({"GET", "HEAD", "OPTIONS"})


class ConsoleCookie(BaseModel):
    id: str
    key_id: str
    digest: str  # digest of the key's secret, or of the token
    expires: int


def issue(ring: KeyRing, key_id: str, digest: str) -> str:
    """The value of a new cookie. Raises Conflict if the server has no key to encrypt it with."""
    cookie = ConsoleCookie(id=new_id(), key_id=key_id, digest=digest, expires=int(time.time()) + SECONDS)
    return base64.urlsafe_b64encode(ring.seal(cookie.model_dump_json(), _CONTEXT).encode()).decode()


def read(ring: KeyRing, headers: Mapping[str, list[str]]) -> ConsoleCookie | None:
    """The cookie of a request; None if it is missing, expired, or was not made by this server."""
    try:
        found = SimpleCookie("; ".join(headers.get("cookie", []))).get(NAME)
        if found is None or len(found.value) > _LONGEST:
            return None
        sealed = base64.b64decode(found.value, altchars=b"-_", validate=True).decode()
        if not is_sealed(sealed):
            return None
        cookie = ConsoleCookie.model_validate_json(ring.unseal(sealed, _CONTEXT))
    except (CookieError, binascii.Error, UnicodeError, SealingError, ValidationError):
        return None
    return cookie if cookie.expires > time.time() else None


def check_same_site(method: str, headers: Mapping[str, list[str]]) -> None:
    """Refuse a change that a page of another site requests, because a browser adds the cookie to every request."""
    # browsers set sec-fetch-site themselves, and a page cannot change it
    if method in _SAFE or headers.get("sec-fetch-site") == ["same-origin"]:
        return
    origins = headers.get("origin", [])
    if len(origins) != 1 or urlsplit(origins[0]).netloc != headers["host"][0]:
        raise NotAllowed("With the console's cookie, only pages of this address may change anything.")
