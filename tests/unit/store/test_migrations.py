"""Migrations have unique numbers and names; a database records the names of those that it has."""

from store.migrate import FOLDER


def test_numbers_of_migrations_are_consecutive_and_their_names_unique() -> None:
    names = sorted(file.name for file in FOLDER.glob("*.sql"))
    assert [name[:5] for name in names] == [f"{number:04}_" for number in range(1, len(names) + 1)]
    assert len({name[5:] for name in names}) == len(names)
