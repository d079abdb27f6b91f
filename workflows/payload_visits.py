"""Visits the payloads of a workflow task at most once on their way in, and not at all on their way out unless they are
encrypted."""

import temporalio.bridge.worker
from temporalio.api.common.v1 import Payload
from temporalio.bridge._visitor import PayloadVisitor
from temporalio.bridge._visitor_functions import PayloadSequence, VisitorFunctions
from temporalio.bridge.proto.workflow_activation import WorkflowActivation
from temporalio.bridge.proto.workflow_completion import WorkflowActivationCompletion
from temporalio.converter import DataConverter
from temporalio.converter._extstore import StorageOperationMetrics

from workflows.codec import EncryptingCodec

_decode_activation = temporalio.bridge.worker.decode_activation
_encode_completion = temporalio.bridge.worker.encode_completion


def visit_payloads_once() -> None:
    """Replace two functions of the SDK (temporalio 1.35) for this process.

    For each workflow task it walks through the whole activation three times and through the whole completion three
    times: for the references of an external storage, for that storage, and for the codec. Each walk copies every
    payload. We have no external storage, and in most installations nothing is encrypted: with two workflow tasks a step
    these walks were a twelfth of the Python time of a worker. With another version of the SDK, look at the two
    functions again, and measure whether this still pays.
    """
    temporalio.bridge.worker.decode_activation = _decoded
    temporalio.bridge.worker.encode_completion = _encoded


class _Decrypting(VisitorFunctions):
    def __init__(self, codec: EncryptingCodec) -> None:
        self._codec = codec

    async def visit_payload(self, payload: Payload) -> None:
        if (decrypted := self._codec.decrypted(payload)) is not payload:
            payload.CopyFrom(decrypted)

    async def visit_payloads(self, payloads: PayloadSequence) -> None:
        for payload in payloads:
            await self.visit_payload(payload)


async def _decoded(
    activation: WorkflowActivation,
    data_converter: DataConverter,
    decode_headers: bool,
    storage_concurrency_limit: int,
) -> StorageOperationMetrics:
    codec = data_converter.payload_codec
    if data_converter.external_storage or not (codec is None or isinstance(codec, EncryptingCodec)):
        return await _decode_activation(activation, data_converter, decode_headers, storage_concurrency_limit)
    if codec is not None:
        visitor = PayloadVisitor(skip_search_attributes=True, skip_headers=not decode_headers)
        await visitor.visit(_Decrypting(codec), activation)
    return StorageOperationMetrics()


async def _encoded(
    completion: WorkflowActivationCompletion,
    data_converter: DataConverter,
    encode_headers: bool,
    storage_concurrency_limit: int,
) -> StorageOperationMetrics:
    codec = data_converter.payload_codec
    unchanged = codec is None or (isinstance(codec, EncryptingCodec) and not codec.encrypts)
    if data_converter.external_storage or not unchanged:
        return await _encode_completion(completion, data_converter, encode_headers, storage_concurrency_limit)
    return StorageOperationMetrics()
