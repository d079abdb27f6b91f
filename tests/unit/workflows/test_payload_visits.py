"""Payloads of workflow tasks: decrypted on their way in, encrypted on their way out if encryption is on."""

import base64

import pytest
import temporalio.bridge.worker
from temporalio.api.common.v1 import Payload
from temporalio.bridge.proto.workflow_activation import WorkflowActivation
from temporalio.bridge.proto.workflow_completion import WorkflowActivationCompletion
from temporalio.converter import DataConverter

from domain.sealing import KeyRing
from workflows.codec import data_converter
from workflows.payload_visits import visit_payloads_once

KEYS = KeyRing.parse([f"k1:{base64.b64encode(bytes(32)).decode()}"])
PLAIN = Payload(metadata={"encoding": b"json/plain"}, data=b'"a text that is easy to find"')
CONVERTERS = [data_converter(), data_converter(KEYS), data_converter(KEYS, encrypts=True)]


async def sealed() -> Payload:
    codec = CONVERTERS[2].payload_codec
    assert codec is not None
    return (await codec.encode([PLAIN]))[0]


@pytest.fixture(autouse=True)
def replaced(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("decode_activation", "encode_completion"):
        monkeypatch.setattr(temporalio.bridge.worker, name, getattr(temporalio.bridge.worker, name))
    visit_payloads_once()


def activation(payload: Payload) -> WorkflowActivation:
    made = WorkflowActivation(run_id="r")
    made.jobs.add().initialize_workflow.arguments.append(payload)
    made.jobs.add().resolve_activity.result.completed.result.CopyFrom(payload)
    made.jobs.add().signal_workflow.input.append(payload)
    made.jobs.add().resolve_activity.result.failed.failure.encoded_attributes.CopyFrom(payload)
    return made


@pytest.mark.parametrize("converter", CONVERTERS, ids=["no-keys", "keys", "encrypting"])
async def test_plain_payloads_of_an_activation_stay_as_they_are(converter: DataConverter) -> None:
    given = activation(PLAIN)
    await temporalio.bridge.worker.decode_activation(given, converter, False, 1)
    assert given == activation(PLAIN)


@pytest.mark.parametrize("converter", CONVERTERS[1:], ids=["keys", "encrypting"])
async def test_encrypted_payloads_of_an_activation_are_decrypted(converter: DataConverter) -> None:
    given = activation(await sealed())
    await temporalio.bridge.worker.decode_activation(given, converter, False, 1)
    assert given == activation(PLAIN)


@pytest.mark.parametrize(("converter", "encrypts"), [*zip(CONVERTERS, (False, False, True), strict=True)])
async def test_payloads_of_a_completion_are_encrypted_if_encryption_is_on(
    converter: DataConverter, encrypts: bool
) -> None:
    completion = WorkflowActivationCompletion(run_id="r")
    completion.successful.commands.add().schedule_activity.arguments.append(PLAIN)
    await temporalio.bridge.worker.encode_completion(completion, converter, False, 1)
    [argument] = completion.successful.commands[0].schedule_activity.arguments
    assert (argument != PLAIN) == encrypts and (b"easy to find" in argument.data) != encrypts
