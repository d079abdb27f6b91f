"""The runner assumes that payloads have no serialization context; no configured converter may use one."""

import base64

from temporalio.converter import WithSerializationContext

from domain.sealing import KeyRing
from workflows import client as workflow_client
from workflows.codec import data_converter


async def test_payload_conversion_is_independent_of_context() -> None:
    plain = (await workflow_client.connect(lazy=True, address="127.0.0.1:1")).data_converter
    keys = KeyRing.parse([f"k1:{base64.b64encode(bytes(32)).decode()}"])
    encrypting = data_converter(keys, encrypts=True)
    assert plain.payload_codec is None and encrypting.payload_codec is not None
    assert plain.external_storage is None and encrypting.external_storage is None
    assert not isinstance(encrypting.payload_codec, WithSerializationContext)
