"""Payloads: their JSON, and the codec that encrypts it (AES-GCM), so that Temporal's server sees no content.

The codec covers arguments, results, heartbeats, memos, summaries and failures with their messages. Search attributes,
names and ids stay readable, because the server needs them.
"""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from pydantic_core import SchemaSerializer
from pydantic_core.core_schema import any_schema
from temporalio.api.common.v1 import Payload
from temporalio.contrib.pydantic import PydanticJSONPlainPayloadConverter
from temporalio.converter import (
    CompositePayloadConverter,
    DataConverter,
    DefaultFailureConverterWithEncodedAttributes,
    DefaultPayloadConverter,
    JSONPlainPayloadConverter,
    PayloadCodec,
)

from domain.sealing import KeyRing, KeyRingError, SealingError

ENCODING, KEY_ID = "encoding", "encryption-key-id"  # as Temporal's own examples name them
ENCRYPTED = b"binary/encrypted"
_CONTEXT = b"temporal payload"


class EncryptingCodec(PayloadCodec):
    """Encrypts with the current key, if encryption is on; decrypts with every key."""

    def __init__(self, keys: KeyRing, *, encrypts: bool) -> None:
        self._keys = keys
        self.encrypts = encrypts

    async def encode(self, payloads: Sequence[Payload]) -> list[Payload]:
        return [self._encrypt(payload) for payload in payloads] if self.encrypts else list(payloads)

    async def decode(self, payloads: Sequence[Payload]) -> list[Payload]:
        return [self._decrypt(payload) for payload in payloads]

    def _encrypt(self, payload: Payload) -> Payload:
        metadata = {ENCODING: ENCRYPTED, KEY_ID: self._keys.current.encode()}
        return Payload(metadata=metadata, data=self._keys.encrypt(payload.SerializeToString(), _CONTEXT))

    def _decrypt(self, payload: Payload) -> Payload:
        """Decrypt. A payload from before encryption, or a forged one, is passed on unchanged.

        Raising here fails the workflow task. That is right for a missing key, since the task is repeated until the
        worker has the key. It would be wrong for a forged signal, which would block its workflow forever: no converter
        reads such a payload, and the signal is dropped.
        """
        if payload.metadata.get(ENCODING) != ENCRYPTED or KEY_ID not in payload.metadata:
            return payload
        key_id = payload.metadata[KEY_ID].decode("ascii", "replace")
        if key_id not in self._keys:
            raise SealingError(f"a payload needs the key {key_id!r}, which is not in ERRAND_SECRET_KEYS")
        try:
            return Payload.FromString(self._keys.decrypt(key_id, payload.data, _CONTEXT))
        except SealingError:
            return payload


class SmallPayloads(PydanticJSONPlainPayloadConverter):
    """Leaves out what has its default, to keep histories small: a reader fills it in again."""

    _serializer = SchemaSerializer(any_schema())

    def to_payload(self, value: Any) -> Payload:
        data = self._serializer.to_json(value, exclude_defaults=True)
        return Payload(metadata={"encoding": self.encoding.encode()}, data=data)


# One for the process: it has an adapter for each type, and the SDK makes a converter for each activation of a workflow.
_JSON = SmallPayloads()


class PayloadConverter(CompositePayloadConverter):
    def __init__(self) -> None:
        others = DefaultPayloadConverter.default_encoding_payload_converters
        super().__init__(*(_JSON if isinstance(one, JSONPlainPayloadConverter) else one for one in others))


PLAIN = DataConverter(payload_converter_class=PayloadConverter)


def data_converter(keys: KeyRing | None = None, *, encrypts: bool = False) -> DataConverter:
    """The converter of every client, worker and replayer. With keys it always decrypts, even if encryption is off."""
    if encrypts and not keys:
        raise KeyRingError("ERRAND_PAYLOAD_ENCRYPTION=on needs ERRAND_SECRET_KEYS")
    if not keys:
        return PLAIN
    converter = replace(PLAIN, payload_codec=EncryptingCodec(keys, encrypts=encrypts))
    if encrypts:
        converter = replace(converter, failure_converter_class=DefaultFailureConverterWithEncodedAttributes)
    return converter
