"""The runner answers for the workflow that no payload has a context; nothing that uses one may be configured."""

from workflows import client as workflow_client


async def test_payload_conversion_is_independent_of_context() -> None:
    converter = (await workflow_client.connect(lazy=True, address="127.0.0.1:1")).data_converter
    assert converter.payload_codec is None
    assert converter.external_storage is None
