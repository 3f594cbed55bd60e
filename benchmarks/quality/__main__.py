"""`make quality`: measure the house, and print each row of every table that falls short.

python -m benchmarks.quality            measures, and prints
python -m benchmarks.quality record X   records that `make X` has passed on this commit
"""

import json
import sys

from benchmarks.quality import house
from benchmarks.quality.rows import OUT, TITLES, commit, record, short, today


def main(argv: list[str]) -> int:
    """Measure, or record a passed make target."""
    if argv[:1] == ["record"]:
        (OUT / "raw").mkdir(parents=True, exist_ok=True)
        (OUT / "raw" / f"{argv[1]}.json").write_text(json.dumps({"commit": commit(), "date": today()}))
        return 0
    record("house", house.rows())
    for table in TITLES:
        print(*short(table), sep="\n", end="\n" if short(table) else "")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
