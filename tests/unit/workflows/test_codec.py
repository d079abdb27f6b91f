"""The payload codec: rotation, payloads that pass unchanged, and those that must not."""

import base64

import pytest
from temporalio.api.common.v1 import Payload

from domain.sealing import KeyRing, KeyRingError, SealingError
from workflows.codec import EncryptingCodec, SharedPayloadConverter, data_converter
from workflows.registry import WORKFLOWS
from workflows.replay import new_replayer

OLD, NEW = (base64.b64encode(bytes([number]) * 32).decode() for number in (1, 2))
PLAIN = Payload(metadata={"encoding": b"json/plain"}, data=b'"swordfish"')


async def test_a_new_key_encrypts_and_the_old_one_still_decrypts() -> None:
    [stored] = await EncryptingCodec(KeyRing.parse([f"old:{OLD}"]), encrypts=True).encode([PLAIN])
    assert b"swordfish" not in stored.SerializeToString()
    rotated = EncryptingCodec(KeyRing.parse([f"new:{NEW}", f"old:{OLD}"]), encrypts=True)
    assert await rotated.decode([stored, PLAIN]) == [PLAIN, PLAIN]
    assert (await rotated.encode([PLAIN]))[0].metadata["encryption-key-id"] == b"new"
    switched_off = EncryptingCodec(KeyRing.parse([f"old:{OLD}"]), encrypts=False)
    assert await switched_off.encode([PLAIN]) == [PLAIN] and await switched_off.decode([stored]) == [PLAIN]


async def test_forged_payloads_are_passed_on_and_a_missing_key_is_an_error() -> None:
    codec = EncryptingCodec(KeyRing.parse([f"old:{OLD}"]), encrypts=True)
    for metadata in ({"encoding": b"binary/encrypted"}, {"encoding": b"binary/encrypted", "encryption-key-id": b"old"}):
        for data in (b"", b"x", b"x" * 99):
            forged = Payload(metadata=metadata, data=data)
            assert await codec.decode([forged]) == [forged]
    with pytest.raises(SealingError, match="'new'"):
        await codec.decode(await EncryptingCodec(KeyRing.parse([f"new:{NEW}"]), encrypts=True).encode([PLAIN]))


def test_encryption_needs_keys() -> None:
    with pytest.raises(KeyRingError, match="ERRAND_SECRET_KEYS"):
        data_converter(KeyRing(), encrypts=True)
    assert data_converter().payload_codec is None


def test_all_converters_share_one_payload_converter() -> None:
    keys = KeyRing.parse([f"k:{OLD}"])
    converters = [data_converter(), data_converter(keys), data_converter(keys, encrypts=True)]
    converters.append(new_replayer(list(WORKFLOWS)).config()["data_converter"])
    shared = SharedPayloadConverter()
    assert all(one.payload_converter_class() is shared for one in converters)  # the SDK calls the class
    [payload] = shared.to_payloads([{"a": 1}])
    assert shared.from_payloads([payload], [dict[str, int]]) == [{"a": 1}]
