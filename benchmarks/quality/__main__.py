"""`make quality`: measure the house, and print each row of every table that falls short or is missing.

python -m benchmarks.quality            measures, and prints
python -m benchmarks.quality record X   records that `make X` has passed on this commit
python -m benchmarks.quality pages      writes the tables' pages from their files, for example after a merge
"""

import json
import sys

from benchmarks.measure import page
from benchmarks.quality import house
from benchmarks.quality.rows import OUT, TITLES, commit, missing, record, short, today, write_page


def main(argv: list[str]) -> int:
    """Measure, record a passed make target, or write the pages, and return the exit status."""
    if argv[:1] == ["record"]:
        if len(argv) != 2:
            print("record needs the make target that has passed, for example: record test-compat", file=sys.stderr)
            return 2
        (OUT / "raw").mkdir(parents=True, exist_ok=True)
        (OUT / "raw" / f"{argv[1]}.json").write_text(json.dumps({"commit": commit(), "date": today()}))
        return 0
    if argv[:1] == ["pages"]:
        for table in TITLES:
            write_page(table)
        page.write()
        return 0
    record("house", house.rows())
    for table in TITLES:
        for sentence in (*short(table), *missing(table)):
            print(sentence)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
