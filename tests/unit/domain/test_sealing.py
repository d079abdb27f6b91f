import base64

import pytest

from domain.agents.definition import AgentDefinition, Variable, VariableKind
from domain.agents.system_prompt import system_prompt
from domain.agents.variables import open_secrets, seal_secrets
from domain.errors import Conflict, Invalid
from domain.redaction import is_sealed, mask_sealed
from domain.sealing import KeyRing, KeyRingError, SealingError

OLD, NEW = (base64.b64encode(bytes([number]) * 32).decode() for number in (1, 2))
RING = KeyRing.parse([f"old:{OLD}"])


def test_a_sealed_text_opens_only_where_it_belongs() -> None:
    stored = RING.seal("swordfish", "mine", "subscription", "1")
    assert is_sealed(stored) and "swordfish" not in stored
    assert stored != RING.seal("swordfish", "mine", "subscription", "1")  # equal secrets have different ciphertexts
    assert RING.unseal(stored, "mine", "subscription", "1") == "swordfish"
    for elsewhere in (("theirs", "subscription", "1"), ("mine", "subscription", "2"), ("mine", "variable", "1")):
        with pytest.raises(SealingError):
            RING.unseal(stored, *elsewhere)
    with pytest.raises(SealingError):
        RING.unseal(
            stored[:-6] + ("AAAA==" if not stored.endswith("AAAA==") else "BBBB=="), "mine", "subscription", "1"
        )


def test_a_new_key_encrypts_and_the_old_one_still_decrypts() -> None:
    stored = RING.seal("swordfish", "mine")
    rotated = KeyRing.parse([f"new:{NEW}", f"old:{OLD}"])
    assert rotated.unseal(stored, "mine") == "swordfish"
    assert rotated.seal("x", "mine").startswith("sealed:new:")
    with pytest.raises(SealingError, match="'old'"):
        KeyRing.parse([f"new:{NEW}"]).unseal(stored, "mine")


def test_without_a_key_nothing_is_sealed_and_old_plain_text_is_read() -> None:
    assert not KeyRing()
    with pytest.raises(Conflict, match="ERRAND_SECRET_KEYS"):
        KeyRing().seal("swordfish", "mine")
    assert KeyRing().unseal("plain", "mine") == "plain"


@pytest.mark.parametrize("wrong", ["", "key", f":{NEW}", "a:c2hvcnQ=", f"a b:{NEW}", "a:!!!"])
def test_bad_keys_are_refused_without_being_shown(wrong: str) -> None:
    with pytest.raises(KeyRingError, match="ERRAND_SECRET_KEYS") as refused:
        KeyRing.parse([wrong])
    assert NEW not in str(refused.value)
    with pytest.raises(KeyRingError, match="two keys"):
        KeyRing.parse([f"a:{NEW}", f"a:{OLD}"])
    # the alphabet of secrets.token_urlsafe
    assert KeyRing.parse(["a:" + NEW.rstrip("=").replace("+", "-").replace("/", "_")])


def test_secret_variables_are_sealed_and_hidden_from_the_model() -> None:
    own = {
        "city": Variable(description="where"),
        "token": Variable(description="for the tool", kind=VariableKind.SECRET),
    }
    stored = seal_secrets(RING, "mine", {"city": "Oslo", "token": "swordfish"}, own)
    for name in ("city", "token", "other"):
        with pytest.raises(Invalid, match="cannot begin with 'sealed:'"):
            seal_secrets(RING, "mine", {name: "sealed:k:x"}, own)
    assert stored["city"] == "Oslo" and "swordfish" not in str(stored)
    assert open_secrets(RING, "mine", stored) == {"token": "swordfish"}
    assert mask_sealed({"a": [stored]}) == {"a": [{"city": "Oslo", "token": "(secret)"}]}
    agent = AgentDefinition(name="guide", description="x", prompt="x", variables=own)
    prompt = system_prompt(agent, stored)
    assert "Oslo" in prompt and "token" not in prompt
