"""Sealing: AES-GCM encryption with named keys, for secrets in the database and for payloads in Temporal's history.

Every key has an id, which is stored with the text that it encrypted. The first key encrypts and the others only
decrypt. To replace a key, put a new one before it.
"""

import base64
import binascii
import os
import re
from collections.abc import Iterable, Mapping

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

from domain.errors import Conflict
from domain.redaction import PREFIX, is_sealed

KEY_BYTES = 32
_NONCE_BYTES = 12
_STANDARD = str.maketrans("-_", "+/")
_KEY_ID = re.compile(r"[A-Za-z0-9._-]{1,40}")


class SealingError(Exception):
    """Something encrypted cannot be read: its key is not configured, or it was changed or moved."""


class KeyRingError(ValueError):
    """ERRAND_SECRET_KEYS has no valid keys; the message shows none."""


class KeyRing:
    """The keys of this deployment. Its repr shows no key."""

    def __init__(self, keys: Mapping[str, bytes] | None = None) -> None:
        self._keys = {key_id: AESGCM(key) for key_id, key in (keys or {}).items()}
        self._current = next(iter(self._keys), "")

    @classmethod
    def parse(cls, entries: Iterable[str]) -> "KeyRing":
        """From `id:key` pairs, each key 32 bytes in base64, also of the URL-safe kind. No message shows a key."""
        keys: dict[str, bytes] = {}
        for entry in entries:
            key_id, _, text = entry.partition(":")
            try:
                key = base64.b64decode(text.rstrip("=").translate(_STANDARD) + "=", validate=True)
            except binascii.Error:
                key = b""
            if not _KEY_ID.fullmatch(key_id) or len(key) != KEY_BYTES:
                raise KeyRingError(
                    f"ERRAND_SECRET_KEYS: must be pairs id:key, where a key is {KEY_BYTES} random bytes in base64"
                )
            if key_id in keys:
                raise KeyRingError(f"ERRAND_SECRET_KEYS: has two keys with the id {key_id}")
            keys[key_id] = key
        return cls(keys)

    def __bool__(self) -> bool:
        return bool(self._keys)

    def __contains__(self, key_id: str) -> bool:
        return key_id in self._keys

    @property
    def current(self) -> str:
        """The id of the key that encrypts; empty without keys."""
        return self._current

    def encrypt(self, data: bytes, context: bytes) -> bytes:
        """The data, encrypted with the current key. It can only be decrypted with the same context."""
        nonce = os.urandom(_NONCE_BYTES)
        return nonce + self._keys[self._current].encrypt(nonce, data, context)

    def decrypt(self, key_id: str, data: bytes, context: bytes) -> bytes:
        key = self._keys.get(key_id)
        if key is None:
            raise SealingError(f"this was encrypted with the key {key_id!r}, which is not in ERRAND_SECRET_KEYS")
        try:
            return key.decrypt(data[:_NONCE_BYTES], data[_NONCE_BYTES:], context)
        except (InvalidTag, ValueError):
            raise SealingError("this was changed, or belongs elsewhere") from None

    def seal(self, text: str, *context: str) -> str:
        """The text as it is stored. `context` names its owner and purpose, so that it cannot be moved to another
        place."""
        if not self._keys:
            detail = "Secrets are only stored encrypted, and no key is set: the operator has to set ERRAND_SECRET_KEYS."
            raise Conflict(detail, type="no-secret-key")
        encrypted = self.encrypt(text.encode(), "\n".join(context).encode())
        return f"{PREFIX}{self._current}:{base64.b64encode(encrypted).decode()}"

    def unseal(self, stored: str, *context: str) -> str:
        """The text that was sealed. A text that was stored before there were keys is returned unchanged."""
        if not is_sealed(stored):
            return stored
        key_id, _, encrypted = stored.removeprefix(PREFIX).partition(":")
        try:
            data = base64.b64decode(encrypted, validate=True)
        except binascii.Error:
            raise SealingError("this was changed") from None
        return self.decrypt(key_id, data, "\n".join(context).encode()).decode()
