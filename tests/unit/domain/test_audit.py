"""Chains: a changed, removed, repeated or cut entry is noticed, and its place is named."""

from datetime import UTC, datetime, timedelta

from errand.models import Break, ChainedEntry
from hypothesis import given
from hypothesis import strategies as st

from domain.audit import Head, Verifier, link

TEXT = st.text(max_size=12)
FIELDS = ("actor", "action", "session_id", "subject", "digest", "previous", "hash", "tenant")
BEGAN = datetime(2026, 1, 1, tzinfo=UTC)


def grown(chain: str, texts: list[tuple[str, str]]) -> list[ChainedEntry]:
    entries: list[ChainedEntry] = []
    for number, (actor, subject) in enumerate(texts, start=1):
        previous = entries[-1].hash if entries else ""
        at = BEGAN + timedelta(microseconds=number)
        entry = ChainedEntry(
            tenant="t", chain=chain, seq=number, at=at, actor=actor, action="act", subject=subject, previous=previous
        )
        entries.append(entry.model_copy(update={"hash": link(entry)}))
    return entries


def head_of(entries: list[ChainedEntry]) -> Head:
    return Head(chain=entries[-1].chain, seq=entries[-1].seq, hash=entries[-1].hash)


def broken(entries: list[ChainedEntry], heads: list[Head], expected: str | None = None) -> Break | None:
    verifier = Verifier(expected)
    return verifier.read(entries) or verifier.end(heads)


CHAINS = st.lists(st.tuples(TEXT, TEXT), min_size=1, max_size=8).map(lambda texts: grown("c", texts))


@given(CHAINS)
def test_an_untouched_chain_holds(entries: list[ChainedEntry]) -> None:
    assert broken(entries, [head_of(entries)]) is None


@given(CHAINS, st.data())
def test_any_change_is_named(entries: list[ChainedEntry], data: st.DataObject) -> None:
    place = data.draw(st.integers(0, len(entries) - 1))
    field = data.draw(st.sampled_from(FIELDS))
    before = getattr(entries[place], field)
    after = data.draw(TEXT.filter(lambda text: text != before))
    changed = [*entries[:place], entries[place].model_copy(update={field: after}), *entries[place + 1 :]]
    found = broken(changed, [head_of(entries)])
    assert found is not None and (found.chain, found.seq) == ("c", place + 1)


@given(CHAINS, st.data())
def test_any_missing_or_doubled_entry_is_named(entries: list[ChainedEntry], data: st.DataObject) -> None:
    place = data.draw(st.integers(0, len(entries) - 1))
    without = [*entries[:place], *entries[place + 1 :]]
    found = broken(without, [head_of(entries)])
    assert found is not None and (found.seq, found.problem) == (place + 1, "it is missing")
    twice = [*entries[: place + 1], *entries[place:]]
    found = broken(twice, [head_of(entries)])
    assert found is not None and (found.seq, found.problem) == (place + 1, "it is there twice")


def sealing(heads: list[Head]) -> list[ChainedEntry]:
    subject = "\n".join(f"{head.chain} {head.seq} {head.hash}" for head in heads)
    entry = ChainedEntry(tenant="t", chain="", seq=1, at=BEGAN, actor="errand", action="seal", subject=subject)
    return [entry.model_copy(update={"hash": link(entry)})]


@given(CHAINS, CHAINS, st.data())
def test_a_seal_outlives_the_head(entries: list[ChainedEntry], others: list[ChainedEntry], data: st.DataObject) -> None:
    """Even an attacker who can write the heads cannot cut, drop or rewrite a chain: the tenant's chain shows it."""
    seal = sealing([head_of(entries)])
    heads = [head_of(seal)]
    assert broken(seal + entries, [*heads, head_of(entries)]) is None
    kept = entries[: data.draw(st.integers(0, len(entries) - 1))]
    found = broken(seal + kept, [*heads, *([head_of(kept)] if kept else [])])
    assert found is not None and (found.chain, found.seq) == ("c", len(kept) + 1)
    if others != entries[: len(others)]:
        found = broken(seal + others, [*heads, head_of(others)])
        assert found is not None and found.chain == "c"


@given(CHAINS)
def test_a_head_that_was_noted_elsewhere_must_still_be_there(entries: list[ChainedEntry]) -> None:
    own = grown("", [(entry.actor, entry.subject) for entry in entries])
    assert broken(own, [head_of(own)], own[0].hash) is None
    anew = grown("", [("other", entry.subject) for entry in entries])
    assert broken(anew, [head_of(anew)], own[-1].hash) is not None or anew == own


@given(st.lists(TEXT, min_size=2, max_size=2), st.integers(1, 11))
def test_text_cannot_shift_from_one_field_to_the_next(texts: list[str], by: int) -> None:
    one, two = texts
    moved = (one + two[:by], two[by:])
    if moved != (one, two):
        first, second = (
            ChainedEntry(tenant="t", chain="c", seq=1, at=BEGAN, actor=actor, action=action)
            for actor, action in ((one, two), moved)
        )
        assert link(first) != link(second)
