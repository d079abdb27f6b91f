"""The client of the workflows: time limits, errors and encrypted payloads."""

import base64
import socket
import time
from datetime import timedelta

import pytest
from temporalio.api.common.v1 import Payload

from domain.conversations.requests import Steer
from domain.errors import Unavailable
from domain.sealing import KeyRing, SealingError
from workflows.client import WorkflowClient, connect
from workflows.codec import EncryptingCodec


async def test_a_server_that_accepts_connections_and_is_silent_is_unavailable_in_time() -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        client = WorkflowClient(await connect(lazy=True, address=f"127.0.0.1:{silent.getsockname()[1]}"), "queue")
        begun = time.monotonic()
        with pytest.raises(Unavailable):
            await client.steer("t", "c", Steer(request_id="r", thread="c", message="m"), timedelta(seconds=0.5))
        assert time.monotonic() - begun < 1.5


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
