"""The page contains what its first paint needs, and loads the modules of its rows together."""

import base64
import hashlib
import re
from pathlib import Path

import pytest
from aiohttp.test_utils import make_mocked_request

from halcyon.dashboard.page_files import HEADERS, INDEX, inlined, page_files

STATIC = Path(__file__).parents[3] / "operator/halcyon/dashboard/static"
POLICY = "Content-Security-Policy"


def imported(module: str) -> set[str]:
    """Modules that are loaded with this one, itself among them."""
    modules: set[str] = set()
    due = [module]
    while due:
        name = due.pop()
        if name not in modules:
            modules.add(name)
            if not name.startswith("uplot/"):
                due += re.findall(
                    r'^import .*? from "\./([^"]+)\.js";', (STATIC / f"{name}.js").read_text(), re.MULTILINE
                )
    return modules


def test_texts_of_files_are_in_the_page_and_its_policy() -> None:
    page, policy = inlined(
        '<link rel="stylesheet" href="/static/a.css"><script src="/static/b.js"></script>',
        {"a.css": "p { color: red }", "b.js": "1 < 2"},
    )
    assert page == "<style>p { color: red }</style><script>1 < 2</script>"
    for kind, text in (("style", "p { color: red }"), ("script", "1 < 2")):
        digest = base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()
        assert f"{kind}-src 'self' 'sha256-{digest}';" in policy


def test_a_file_that_is_not_installed_stays_a_link() -> None:
    page = '<link rel="stylesheet" href="/static/absent.css">'
    assert inlined(page, {}) == (page, HEADERS[POLICY])


def test_modules_stay_links() -> None:
    page = '<script type="module" src="/static/app.js"></script>'
    assert inlined(page, {"app.js": ""})[0] == page


def test_the_page_needs_no_style_sheet_and_no_blocking_script() -> None:
    index = page_files()[INDEX]
    page = index.body.decode()
    assert "--accent: light-dark(" in page
    assert "localStorage.getItem" in page
    assert "app.css" not in page
    assert 'src="/static/theme.js"' not in page
    assert "sha256-" in index.headers[POLICY]


@pytest.mark.parametrize("name", ["app.css", "theme.js"])
def test_a_file_in_the_page_does_not_end_its_element(name: str) -> None:
    assert "</" not in (STATIC / name).read_text()


def test_modules_of_the_fleets_page_are_loaded_together() -> None:
    preloaded = re.findall(r'<link rel="modulepreload" href="/static/(.+)\.js">', (STATIC / INDEX).read_text())
    assert set(preloaded) == imported("app")


def test_modules_of_a_models_page_are_loaded_together_and_later() -> None:
    text = re.search(r"const PAGE_OF_A_MODEL = \[(.*)\];", (STATIC / "app.js").read_text())
    assert text is not None
    later = set(re.findall(r'"([^"]+)"', text[1]))
    assert later == (imported("model") | imported("measured")) - imported("app")


def test_commands_that_annotate_replace_the_annotation_of_an_earlier_step() -> None:
    # The annotations stay, and without the option kubectl refuses to change one.
    commands = re.findall(r"kubectl annotate .*", (STATIC / "commands.js").read_text())
    assert len(commands) == 3
    assert [command for command in commands if "--overwrite" not in command] == []


@pytest.mark.parametrize("known", ["{}", "W/{}", '"older", W/{}'])
def test_a_file_behind_a_compressing_proxy_is_sent_once(known: str) -> None:
    file = page_files()["app.js"]
    headers = {"If-None-Match": known.format(file.tag)}
    assert file.response(make_mocked_request("GET", "/static/app.js", headers=headers)).status == 304
    assert (
        file.response(make_mocked_request("GET", "/static/app.js", headers={"If-None-Match": '"older"'})).status == 200
    )


def test_a_printed_page_is_as_long_as_its_content() -> None:
    printed = (STATIC / "app.css").read_text().partition("@media print {")[2]
    assert re.search(r"body \{[^}]*height: auto", printed)
    assert re.search(r"main[^{]*\{[^}]*overflow: visible", printed)
