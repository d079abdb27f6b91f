"""Prices: exact or unknown, never guessed."""

from domain.agents.models import Price, PriceTable

TABLE = PriceTable(models={"m-1": Price(input=2, output=10, cache_read=0.2, cache_write=2.5, context_window=1000)})


def test_each_kind_of_token_has_its_price() -> None:
    assert TABLE.cost("m-1", input=1_000_000, output=0) == 2
    assert TABLE.cost("m-1", input=0, output=1_000_000) == 10
    assert TABLE.cost("m-1", input=0, output=0, cache_read=1_000_000) == 0.2
    assert TABLE.cost("m-1", input=0, output=0, cache_write=1_000_000) == 2.5


def test_a_dated_name_has_the_price_of_the_plain_one() -> None:
    assert TABLE.cost("m-1-20260101", input=500_000, output=0) == 1
    assert TABLE.context_window("m-1-20260101") == 1000


def test_similar_model_names_have_no_price() -> None:
    for name in ("m", "m-1-5", "m-1-latest", "M-1", "m-1-202601", "", "x/m-1"):
        assert TABLE.cost(name, input=1, output=1) is None
        assert TABLE.context_window(name) is None
