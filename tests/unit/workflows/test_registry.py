"""The runner answers for the workflow that no payload has a context; nothing that uses one may be configured."""

from workflows import client as door


async def test_payload_conversion_is_independent_of_context() -> None:
    converter = (await door.connect(lazy=True, address="127.0.0.1:1")).data_converter
    assert converter.payload_codec is None
    assert converter.external_storage is None
