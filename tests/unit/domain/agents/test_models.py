"""Names of models, and prices: exact or unknown, never guessed."""

import pytest

from domain.agents.models import Price, PriceTable, Provider, Providers, UnknownProvider

PROVIDERS = Providers(
    named={
        "anthropic": Provider(kind="anthropic"),
        "openai": Provider(kind="openai"),
        "groq": Provider(kind="openai", base_url="https://api.groq.com/openai/v1", key="s3cret"),
        "bedrock": Provider(kind="bedrock"),
        "vllm": Provider(kind="openai", base_url="http://127.0.0.1:8000/v1"),
        "gateway": Provider(kind="openai", base_url="https://gateway.example/v1", prices="openai"),
    }
)
OWN = {"m-1": Price(input=2, output=10, cache_read=0.2, cache_write=2.5, context_window=1000)}
TABLE = PriceTable(models=OWN, providers=PROVIDERS)


def test_a_dated_name_has_the_price_of_the_plain_one() -> None:
    assert TABLE.cost("m-1-20260101", input=500_000, output=0) == 1
    assert TABLE.context_window("m-1-20260101") == 1000


def test_similar_model_names_have_no_price() -> None:
    for name in ("m", "m-1-5", "m-1-latest", "M-1", "m-1-202601", "", "x/m-1"):
        assert TABLE.cost(name, input=1, output=1) is None
        assert TABLE.context_window(name) is None


@pytest.mark.parametrize(
    ("model", "input", "output"),
    [
        ("claude-sonnet-4-5", 3, 15),
        ("gateway/gpt-4o", 2.5, 10),
        ("bedrock/us.anthropic.claude-sonnet-4-5-20250929-v1:0", 3.3, 16.5),
    ],
)
def test_the_list_has_prices_of_many_sellers(model: str, input: float, output: float) -> None:
    assert TABLE.cost(model, 100_000, 0) == pytest.approx(input / 10)
    assert TABLE.cost(model, 0, 100_000) == pytest.approx(output / 10)


def test_models_of_unknown_sellers_have_no_price_and_own_ones_come_first() -> None:
    for name in ("vllm/gpt-4o", "nobody/gpt-4o", "openai/of-another-year", "groq/claude-sonnet-4-5"):
        assert TABLE.cost(name, 1, 1) is None
    assert TABLE.seller("vllm") is None and TABLE.seller("groq") == "groq" and TABLE.seller("bedrock") == "aws"
    cheap = PriceTable(models={"claude-sonnet-4-5": OWN["m-1"]}, providers=PROVIDERS)
    assert cheap.cost("claude-sonnet-4-5", 1_000_000, 0) == 2
    assert TABLE.is_free("offline") and TABLE.is_free("openai/offline") and not TABLE.is_free("m-1")


def test_a_name_leads_to_its_provider() -> None:
    assert PROVIDERS.split("claude-x") == ("anthropic", "claude-x")
    assert PROVIDERS.split("groq/meta/llama") == ("groq", "meta/llama")
    with pytest.raises(UnknownProvider, match="no provider 'mistral'; there are anthropic, bedrock, gateway"):
        PROVIDERS.split("mistral/large")
    assert "s3cret" not in PROVIDERS.without_keys().as_json() + repr(PROVIDERS)
