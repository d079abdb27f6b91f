"""Redaction of strings that look like keys, in previews: output of an agent is copied into histories and summaries."""

import re

REDACTED = "[redacted]"
_KEYS = re.compile(
    r"""
    \b(?:sk|rk|pk)[-_](?:[A-Za-z0-9]+[-_])*[A-Za-z0-9]{16,}         # model vendors, Stripe
    | \bek_[0-9a-z]{12}_[A-Za-z0-9_-]{43}                           # our own
    | \b(?:gh[opsur]|github_pat|glpat|npm|hf)[-_][A-Za-z0-9_-]{16,} # forges and registries
    | \bwhsec_[A-Za-z0-9+/=]{20,}
    | \b(?:AKIA|ASIA)[A-Z0-9]{16}\b
    | \bAIza[A-Za-z0-9_-]{30,}
    | \bxox[a-z]-[A-Za-z0-9-]{10,}
    | \beyJ[A-Za-z0-9_-]{8,}\.[A-Za-z0-9_-]{8,}\.[A-Za-z0-9_-]*     # JSON Web Tokens
    | -----BEGIN[ ][A-Z ]*PRIVATE[ ]KEY-----
    """,
    re.VERBOSE,
)
_NAMED = re.compile(
    r"""((?:password|passwd|secret|token|api[_-]?key|access[_-]?key)["']?\s*[=:]\s*["']?|\bBearer\s+)"""
    r"""([^\s"'@&;,)]{6,})""",
    re.IGNORECASE,
)
_IN_URL = re.compile(r"(://[^\s/:@]+:)[^\s/@]+(?=@)")


def redacted(text: str) -> str:
    """The text without strings that look like keys or follow `password=` and the like."""
    text = _KEYS.sub(REDACTED, text)
    for pattern in (_NAMED, _IN_URL):
        text = pattern.sub(lambda match: match[1] + REDACTED, text)
    return text
