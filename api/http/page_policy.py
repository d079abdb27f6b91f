"""Restrictions for browsers: no scripts with our data, and for the pages of /docs only what these need."""

import base64
import hashlib
import re

from starlette.types import Message

PAGES = frozenset({"/docs", "/redoc", "/docs/oauth2-redirect"})
PROTECTION = {
    b"content-security-policy": b"default-src 'none'; frame-ancestors 'none'",
    b"x-frame-options": b"DENY",
    b"referrer-policy": b"no-referrer",
}
_INLINE = re.compile(rb"<script(?![^>]*\bsrc=)[^>]*>(.*?)</script>", re.DOTALL)


def with_page_policy(head: Message, body: bytes) -> Message:
    """The head of a page with its policy: only its own scripts, inline ones by their hash."""
    hashes = [base64.b64encode(hashlib.sha256(script).digest()).decode() for script in _INLINE.findall(body)]
    scripts = " ".join(["'self'", *(f"'sha256-{digest}'" for digest in hashes)])
    policy = (
        f"default-src 'none'; script-src {scripts}; style-src 'self' 'unsafe-inline'; img-src 'self' data:; "
        "font-src 'self'; connect-src 'self'; worker-src blob:; frame-ancestors 'none'; base-uri 'none'; "
        "form-action 'none'"
    )
    # replaced and not added: of two policies a browser enforces both
    headers = [(name, value) for name, value in head["headers"] if name != b"content-security-policy"]
    return {**head, "headers": [*headers, (b"content-security-policy", policy.encode())]}
