"""Compare each test with the one that it was before the tests moved: `python scripts/test_map.py [--write]`.

tests/renamed.tsv maps the id of a test at the base commit to its id of now. Two bodies, decorators included, are compared as syntax trees
in which every identifier is blank: names, attributes, arguments, keywords, imports, and the function's own name. Formatting, comments and
docstrings don't count. The result of each row is one of

- equal: the trees are the same, strings and numbers included
- quoted: they are the same but for text, such as a renamed reason or a reworded message
- changed: they differ otherwise; the map has to give the reason, in its third column
- gone, missing: the test is not at the base, or not in the tree

What this can't see: two names swapped, an assertion made of another function of the same shape, and what a fixture or a helper does.
It exits with 1 if a changed test has no reason, an id of the map is not there, or a test of either side is not in the map.

To update the map:

- a new test: commit it, run `python scripts/test_map.py --write`, and commit the map. The reason is the commit that wrote the test.
- a renamed or moved test: change its id in the second column by hand. `--write` adds nothing before that is done, because the new name
  would count as a new test, and the old one as lost.
- a changed test: add the reason in the third column, by hand.
- a removed test: `-` in the second column, and the reason, by hand.

tests/unit/test_layout.py fails if a test of the tree is not in the map, or the reverse. It doesn't compare bodies, which takes 6 s.
"""

import argparse
import ast
import re
import subprocess
import sys
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

ROOT = Path(__file__).parents[1]
MAP = ROOT / "tests" / "renamed.tsv"
BASE = "a528a11"


_IDENTIFIERS = ("id", "attr", "arg", "name", "module", "asname")


def _blank(tree: ast.AST, *, text: bool) -> None:
    """Blank the identifiers of a tree and drop its docstrings; with `text`, blank its strings."""
    for node in ast.walk(tree):
        if text:
            if isinstance(node, ast.Constant) and isinstance(node.value, str | bytes):
                node.value = "_"
            continue
        for field in _IDENTIFIERS:
            if isinstance(getattr(node, field, None), str):
                setattr(node, field, "_")
        if isinstance(node, ast.MatchClass):
            node.kwd_attrs = ["_" for _ in node.kwd_attrs]
        if (
            isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef)
            and ast.get_docstring(node) is not None
        ):
            node.body = node.body[1:] or [ast.Pass()]


def shapes(source: str) -> dict[str, tuple[str, str]]:
    """Return the tests of a module by name, each as its tree with text and without."""
    tests = {
        node.name: node
        for node in ast.walk(ast.parse(source))
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and node.name.startswith("test_")
    }
    shapes_by_name = {}
    for name, node in tests.items():
        _blank(node, text=False)
        with_text = ast.dump(node)
        _blank(node, text=True)
        shapes_by_name[name] = (with_text, ast.dump(node))
    return shapes_by_name


def _git(*arguments: str) -> str:
    return subprocess.run(["git", "-C", ROOT, *arguments], check=True, capture_output=True, text=True).stdout


def _blobs(commit: str, paths: Sequence[str]) -> Iterator[str]:
    """Yield the content of each file at a commit, by one process for all."""
    requests = "".join(f"{commit}:{path}\n" for path in paths).encode()
    out = subprocess.run(
        ["git", "-C", ROOT, "cat-file", "--batch"], input=requests, check=True, capture_output=True
    ).stdout
    offset = 0
    for _ in paths:
        head, offset = out[offset : out.index(b"\n", offset)], out.index(b"\n", offset) + 1
        size = int(head.split()[2])
        yield out[offset : offset + size].decode()
        offset += size + 1


def _is_module(path: str) -> bool:
    return path.rpartition("/")[2].startswith("test_") and path.endswith(".py")


def at_base(commit: str) -> dict[str, tuple[str, str]]:
    """Return the tests of a commit by id."""
    paths = list(filter(_is_module, _git("ls-tree", "-r", "--name-only", commit, "tests").splitlines()))
    return {
        f"{path}::{name}": shape
        for path, text in zip(paths, _blobs(commit, paths), strict=True)
        for name, shape in shapes(text).items()
    }


def in_tree() -> dict[str, tuple[str, str]]:
    """Return the tests of the working tree by id."""
    paths = sorted((ROOT / "tests").rglob("test_*.py"))
    return {
        f"{path.relative_to(ROOT)}::{name}": shape for path in paths for name, shape in shapes(path.read_text()).items()
    }


def origins(path: str) -> dict[str, str]:
    """Return the commit that wrote each test of a module, as hash and subject, by name. Uncommitted tests are left out."""
    subjects: dict[str, str] = {}
    commits: dict[str, str] = {}
    commit = ""
    for line in _git("blame", "--porcelain", "--", path).splitlines():
        if words := re.match(r"([0-9a-f]{40}) \d+ \d+", line):
            commit = words[1]
        elif line.startswith("summary "):
            subjects[commit] = line.removeprefix("summary ")
        elif (test := re.match(r"\t\s*(?:async )?def (test_\w+)", line)) and commit.strip("0"):
            commits[test[1]] = f"{commit[:8]} {subjects[commit]}"
    return commits


def write(new: Iterable[str]) -> list[str]:
    """Append a row for each new test, and return those that are not committed yet, which have no row."""
    by_path: dict[str, list[str]] = {}
    for test in new:
        path, _, name = test.partition("::")
        by_path.setdefault(path, []).append(name)
    uncommitted = []
    with MAP.open("a") as file:
        for path, names in by_path.items():
            commits = origins(path) if _git("ls-files", "--", path) else {}
            for name in names:
                if name in commits:
                    file.write(f"-\t{path}::{name}\t{commits[name]}\n")
                else:
                    uncommitted.append(f"{path}::{name}")
    return uncommitted


def rows() -> Iterator[tuple[str, str, str]]:
    """Yield old id, new id and reason; an id is `-` for a test that only one side has."""
    for line in MAP.read_text().splitlines():
        if line and not line.startswith("#"):
            old, new, *reason = line.split("\t")
            yield old, new, reason[0] if reason else ""


def result(old: tuple[str, str] | None, new: tuple[str, str] | None) -> str:
    """Return how two tests compare, by the table of this module's docstring."""
    if old is None or new is None:
        return "gone" if old is None else "missing"
    return "equal" if old[0] == new[0] else "quoted" if old[1] == new[1] else "changed"


def main() -> int:
    """Print a count per result and the rows that need a look."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--base", default=BASE, help="the commit of the old ids (default: %(default)s)")
    parser.add_argument("--write", action="store_true", help="add the new tests that are committed to the map")
    parser.add_argument("--all", action="store_true", help="list changed and new tests that have a reason too")
    arguments = parser.parse_args()
    old, new = at_base(arguments.base), in_tree()
    counts: Counter[str] = Counter()
    unexplained = []
    for before, after, reason in rows():
        is_single = "-" in {before, after}
        outcome = (
            ("added" if before == "-" else "removed")
            if is_single
            else result(old.pop(before, None), new.pop(after, None))
        )
        if is_single:
            outcome = (
                outcome if (new if before == "-" else old).pop(after if before == "-" else before, None) else "missing"
            )
        explained = outcome in {"equal", "quoted"} or (outcome in {"changed", "added", "removed"} and reason)
        counts[
            outcome
            if outcome in {"equal", "quoted"}
            else f"{outcome}, {'explained' if explained else 'without a reason'}"
        ] += 1
        if not explained:
            unexplained.append(f"{outcome}: {before} -> {after}")
        elif arguments.all and reason:
            print(f"{outcome}: {before} -> {after}: {reason}")
    unexplained += [f"not in the map: {test} of {arguments.base}" for test in old]
    unmapped = list(new)
    if arguments.write and unmapped:
        if counts["missing, without a reason"]:
            print("nothing is added before the missing tests have their new ids, or a reason:")
        else:
            unmapped = write(unmapped)
            print(
                f"added {len(new) - len(unmapped)} tests to {MAP.relative_to(ROOT)}"
                + "; commit the others first" * bool(unmapped)
            )
    unexplained += [f"not in the map: {test}" for test in unmapped]
    print("\n".join(unexplained + [f"{count:6} {outcome}" for outcome, count in counts.most_common()]))
    return int(bool(unexplained))


if __name__ == "__main__":
    sys.exit(main())
