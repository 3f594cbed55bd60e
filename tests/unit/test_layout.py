"""The layout of the tests: the folders of tests/unit are those of the packages, and names are short and plain (CONTRIBUTING.md)."""

from __future__ import annotations

import re
from collections import Counter
from pathlib import Path

ROOT = Path(__file__).parents[2]
TESTS = ROOT / "tests"
PACKAGES = (ROOT / "operator" / "halcyon", *ROOT.glob("*/halcyon_*"))
MODULES = sorted(TESTS.rglob("test_*.py"))
MAP = TESTS / "renamed.tsv"
MAX_MODULES = 16
MAX_WORDS = 12
BANNED = {"told", "tells", "tell", "heard", "hears", "hear", "anew", "whoever", "nobody", "somebody"}
"""Words of the glossary in CONTRIBUTING.md that name no thing of the field."""
PRONOUNS = {
    "it",
    "its",
    "they",
    "he",
    "she",
    "who",
    "whom",
    "whose",
    "what",
    "whatever",
    "there",
    "nothing",
    "something",
    "everything",
}
"""Words that no name begins with: a test has a domain noun as its subject."""


_TEST = re.compile(r"^[ \t]*(?:async )?def (test_\w*)", re.MULTILINE)


def names(module: Path) -> list[str]:
    """Return the names of its test functions, those in texts too: by the text, since a walk over each syntax tree takes two seconds."""
    return _TEST.findall(module.read_text())


NAMES = [(str(module.relative_to(ROOT)), name) for module in MODULES for name in names(module)]


def test_folders_of_unit_tests_are_those_of_the_packages() -> None:
    unit = TESTS / "unit"
    folders = {module.parent.relative_to(unit) for module in unit.rglob("test_*.py")}
    folders |= {parent for folder in folders for parent in folder.parents}
    # The command line is a package of its own, whose tests are in the folder of its name.
    known = {folder.relative_to(package) for package in PACKAGES for folder in package.rglob("*") if folder.is_dir()}
    known |= {
        Path(package.name.removeprefix("halcyon_")) / folder.relative_to(package)
        for package in PACKAGES
        for folder in (package, *package.rglob("*"))
        if folder.is_dir()
    }
    assert len(folders) > 30
    assert [str(folder) for folder in sorted(folders - known) if folder.parts] == []


def test_folders_hold_at_most_sixteen_test_modules() -> None:
    held = Counter(str(module.parent.relative_to(ROOT)) for module in MODULES)
    assert {folder: count for folder, count in held.items() if count > MAX_MODULES} == {}


def test_names_have_at_most_twelve_words() -> None:
    assert len(NAMES) > 2000
    assert [test for test in NAMES if len(test[1].split("_")) - 1 > MAX_WORDS] == []


def test_names_have_no_banned_word() -> None:
    assert [test for test in NAMES if BANNED & set(test[1].split("_"))] == []


def test_names_begin_with_a_noun_and_not_with_a_pronoun() -> None:
    subject = re.compile(rf"test_(({'|'.join(sorted(PRONOUNS))})_|one_(that|who|whose|of)_)")
    assert [test for test in NAMES if subject.match(test[1])] == []


def test_names_are_unique_in_their_module() -> None:
    assert [test for test, count in Counter(NAMES).items() if count > 1] == []


def test_each_test_is_in_the_map_of_tests_and_the_reverse() -> None:
    """See scripts/test_map.py, which adds new tests with `--write`, and compares bodies too."""
    mapped = [line.split("\t")[1] for line in MAP.read_text().splitlines() if not line.startswith("#")]
    assert [test for test, count in Counter(mapped).items() if count > 1 and test != "-"] == []
    present = {f"{path}::{name}" for path, name in NAMES}
    assert {"not in the tree": set(mapped) - {"-"} - present, "not in the map": present - set(mapped)} == {
        "not in the tree": set(),
        "not in the map": set(),
    }
