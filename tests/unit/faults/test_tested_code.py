"""Versions of the code that results were measured on: which changes count, and that they survive being written."""

from pathlib import Path

from tests.faults.tested_code import Code, load_codes, modules_of, present, save_codes, without_words


def package(folder: Path, files: dict[str, str]) -> Path:
    """A folder with modules below halcyon."""
    for name, text in files.items():
        file = folder / "halcyon" / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)
    return folder


def test_imported_modules_are_found_also_within_functions(tmp_path: Path) -> None:
    source = package(
        tmp_path,
        {
            "__init__.py": "",
            "entry.py": "import json\nfrom halcyon.a import one\n\ndef later():\n    from halcyon import b\n",
            "a/__init__.py": "",
            "a/one.py": "import halcyon.c",
            "b.py": "",
            "c.py": "",
            "unused.py": "",
        },
    )
    names = {"halcyon", "halcyon.entry", "halcyon.a", "halcyon.a.one", "halcyon.b", "halcyon.c"}
    assert modules_of(source, "halcyon.entry").keys() == names


def test_digests_of_modules_ignore_comments_and_docstrings(tmp_path: Path) -> None:
    def digest(text: str) -> str:
        return modules_of(package(tmp_path, {"__init__.py": "", "m.py": text}), "halcyon.m")["halcyon.m"]

    plain = digest("def f():\n    return 1\n")
    assert digest('"""Words."""\n\n\ndef f():  # a comment\n    """Other words."""\n    return (1)\n') == plain
    assert digest("def f():\n    return 2\n") != plain


def test_schemas_are_compared_without_descriptions() -> None:
    schema = {"description": "words", "properties": {"description": {"type": "string", "description": "more"}}}
    assert without_words(schema) == {"properties": {"description": {"type": "string"}}}


def test_share_of_changed_modules_counts_added_and_removed_ones() -> None:
    one = Code({"a": "1", "b": "1", "c": "1"}, "s", "c1", "t")
    other = Code({"a": "1", "b": "2", "d": "1"}, "s", "c2", "t")
    assert one.changed(other) == other.changed(one) == 0.75
    assert one.is_close_to(one)
    assert not one.is_close_to(other)


def test_versions_of_the_code_are_the_same_after_they_were_written(tmp_path: Path) -> None:
    assert load_codes(tmp_path) == {}
    code = present("c", "t")
    assert len(code.modules) > 200
    save_codes(tmp_path, {code.digest: code})
    assert load_codes(tmp_path) == {code.digest: code}
    assert load_codes(tmp_path)[code.digest].digest == code.digest
