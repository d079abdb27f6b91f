"""Chains: a changed entry is noticed and named; tests/behaviour/store/test_audit.py has all other damage."""

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


def broken(entries: list[ChainedEntry], heads: list[Head]) -> Break | None:
    verifier = Verifier()
    verifier.read(entries)
    verifier.end(heads)
    return verifier.found


CHAINS = st.lists(st.tuples(TEXT, TEXT), min_size=1, max_size=8).map(lambda texts: grown("c", texts))


@given(CHAINS, st.data())
def test_any_change_is_named(entries: list[ChainedEntry], data: st.DataObject) -> None:
    place = data.draw(st.integers(0, len(entries) - 1))
    field = data.draw(st.sampled_from(FIELDS))
    before = getattr(entries[place], field)
    after = data.draw(TEXT.filter(lambda text: text != before))
    changed = [*entries[:place], entries[place].model_copy(update={field: after}), *entries[place + 1 :]]
    found = broken(changed, [head_of(entries)])
    assert found is not None and (found.chain, found.seq) == ("c", place + 1)


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
