"""Prints the stormiest day and the mean use of oil, from log.csv."""

import csv
import sys
from pathlib import Path


def main() -> None:
    with Path("log.csv").open() as file:
        rows = list(csv.DictReader(file))
    stormiest = max(rows, key=lambda row: row["wave_m"])
    oil = sum(float(row["oil_l"]) for row in rows) / len(rows)
    sys.stdout.write(f"stormiest: {stormiest['day']} with {stormiest['wave_m']} m; oil per day: {oil:.1f} l\n")


if __name__ == "__main__":
    main()
