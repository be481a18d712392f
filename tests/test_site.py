"""The site of the documents: short pages, no dead link, nothing from afar, a search in files.

In a real browser it is searched and fits a phone. That needs Debian's packages chromium and
chromium-driver, which `make test` installs where it can.
"""

import collections
import html.parser
import os
import pathlib
import re
import subprocess
import sys
import urllib.parse

import pytest
import yaml

from tests import browser as browsers

ROOT = pathlib.Path(__file__).parents[1]
DOCS = ROOT / "docs"
LONG = {"decisions.md", "preregistration.md", "theory.md"}
MADE = {"api.md", "fields.md", "presets.md", "programs.md"}
# JavaScript: the number of tables that a reader must scroll sideways.
_CUT = """
return [...document.querySelectorAll(".md-typeset__scrollwrap")]
  .filter(table => table.scrollWidth > table.clientWidth + 1).length
"""

QUESTIONS = {
    "Where do I clone it from, and under which licence?": ("README.md", "Apache 2.0"),
    "Which Python runs the snippet?": ("README.md", "Run this with `.venv/bin/python`"),
    "Which Debian packages make it fast?": ("docs/install.md", "python3-venv g++ python3-dev"),
    "How do I train on my own game?": ("docs/own.md", "## A game of your own"),
    "How do I change the network?": ("docs/own.md", "## A network of your own"),
    "Where are the scores of all seeds of one arm?": (
        "docs/tables.md",
        "## All scores as one table",
    ),
    "How do I search hyperparameters?": ("docs/sweeps.md", "## Search hyperparameters"),
    "Why are games missing?": ("docs/results.md", "`erainbow_sa` and `rcrl` have 13 games"),
    "How much memory does a run of rcrl_sac take?": ("docs/install.md", "| `rcrl_sac` | 6.6 |"),
    "How do I log to W&B, share an agent, film in colour?": ("docs/sharing.md", "## Films"),
}
"""What a new user asks -> where the answer is."""


class Page(html.parser.HTMLParser):
    """What a page links to and loads, and its anchors."""

    def __init__(self, path: pathlib.Path):
        super().__init__()
        self.links, self.loaded, self.anchors = [], [], set()
        self.feed(path.read_text())

    def handle_starttag(self, tag, attributes):
        own = dict(attributes)
        self.anchors |= {own.get("id"), own.get("name")}
        if tag == "a" and own.get("href"):
            self.links.append(own["href"])
        if tag == "link" and own.get("rel") in ("stylesheet", "icon", "modulepreload"):
            self.loaded.append(own["href"])
        if own.get("src"):
            self.loaded.append(own["src"])


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    folder = tmp_path_factory.mktemp("site")
    command = ["-m", "mkdocs", "build", "--strict", "--quiet", f"--site-dir={folder}"]
    built = subprocess.run(
        [sys.executable, *command],
        cwd=ROOT, capture_output=True, text=True, env=os.environ | {"NO_MKDOCS_2_WARNING": "1"},
    )  # fmt: skip
    assert built.returncode == 0, built.stderr
    return folder


@pytest.fixture(scope="module")
def pages(site):
    return {path: Page(path) for path in site.rglob("*.html") if path.name != "404.html"}


def navigation() -> dict[str, list[str]]:
    """Part of the site -> its pages."""
    text = (ROOT / "mkdocs.yml").read_text()
    parts = yaml.safe_load(text)["nav"]
    return {
        name: [page if isinstance(page, str) else next(iter(page.values())) for page in own]
        for part in parts
        for name, own in part.items()
    }


@pytest.mark.slow
def test_no_link_is_dead_and_nothing_is_loaded_from_afar(pages):
    missing = []
    for path, page in pages.items():
        assert not [address for address in page.loaded if "//" in address]
        for link in [*page.links, *page.loaded]:
            address, heading = urllib.parse.urldefrag(urllib.parse.unquote(link))
            if "://" in address or address.startswith("mailto:"):
                continue
            target = (path.parent / address).resolve() if address else path
            anchors = pages[target].anchors if target in pages else set()
            if not target.exists() or (heading and anchors and heading not in anchors):
                missing.append((path.name, link))
    assert not missing
    assert len(pages) > 100


@pytest.mark.slow
def test_pages_are_made_from_the_code(site):
    for page, words in {
        "presets": "return_contrast.discriminator_hidden",
        "fields": "without effect unless",
        "programs": "experiments.atari100k",
        "api": "dotted names",
    }.items():
        assert words in (site / f"{page}.html").read_text()
    fields = (site / "fields.html").read_text()
    assert fields.count("<h2") == 8  # sources, and seven configurations
    programs = (site / "programs.html").read_text()
    assert programs.count("<h2") > 20


@pytest.fixture(scope="module")
def browser(tmp_path_factory):
    started = browsers.start(tmp_path_factory.mktemp("profile"))
    yield started
    started.quit()


@pytest.mark.slow
def test_the_search_finds_how_to_train_a_game_in_a_page_without_a_server(site, browser):
    from selenium.webdriver.support.wait import WebDriverWait

    browsers.resize(browser, 1280)
    browser.get((site / "index.html").as_uri())
    box = browser.find_element("css selector", "[data-md-component=search-query]")
    box.click()
    box.send_keys("own game")
    first = [f".md-search-result__item:nth-child({n}) a[href*=own]" for n in (1, 2, 3)]
    WebDriverWait(browser, 60).until(
        lambda page: page.find_elements("css selector", ", ".join(first))
    )
    assert not [line for line in browser.get_log("browser") if line["level"] == "SEVERE"]


@pytest.mark.slow
@pytest.mark.parametrize("width", [400, 1280])
def test_pages_fit_a_screen(site, browser, width):
    browsers.resize(browser, width)
    for page in site.glob("*.html"):
        browser.get(page.as_uri())
        wide = browser.execute_script("return document.documentElement.scrollWidth")
        assert wide <= width, page.name
        if width == 1280 and page.stem in ("index", "results"):
            assert not browser.execute_script(_CUT), page.name


def test_every_page_has_a_place_in_one_of_five_parts():
    parts = navigation()
    assert [*parts] == ["Start", "Guide", "Reference", "Science", "Develop"]
    named = collections.Counter(page for own in parts.values() for page in own)
    assert set(named.values()) == {1}
    written = {path.name for path in DOCS.glob("*.md")}
    assert written | MADE | {"index.md"} == {page for page in named if "/" not in page}


def test_pages_are_short():
    for path in DOCS.glob("*.md"):
        if path.name not in LONG:
            assert len(path.read_text().splitlines()) <= 250, path.name
    counted = [path for path in DOCS.glob("*.md") if path.name != "preregistration.md"]
    # Tables that a program writes into a page are generated.
    tables = re.compile("<!-- measured:.*?<!-- end -->", re.DOTALL)
    assert sum(len(tables.sub("", path.read_text()).split()) for path in counted) <= 34_000


@pytest.mark.parametrize("question", QUESTIONS)
def test_an_answer_is_two_clicks_from_the_first_page(question):
    name, words = QUESTIONS[question]
    assert words in (ROOT / name).read_text()
    near = {"README.md"} | linked("README.md")
    assert name in near | {far for one in near if one.endswith(".md") for far in linked(one)}


def linked(name: str) -> set[str]:
    """The files that a document links to."""
    found = re.findall(r"\]\(([^)#:]+)(?:#[^)]*)?\)", (ROOT / name).read_text())
    return {os.path.normpath(os.path.join(os.path.dirname(name), link)) for link in found}


def test_nothing_but_one_variable_names_an_address_of_this_project():
    (url,) = re.findall('^URL = "(.*)"', (ROOT / "setup.py").read_text(), re.MULTILINE)
    texts = [
        path
        for pattern in ("*.md", "*.cff", "*.toml", "*.yml", "*.py", "docs/*.md", "rcrl_jax/**/*.py")
        for path in ROOT.glob(pattern)
    ]
    for path in texts:
        text = path.read_text().replace(url, "") if url else path.read_text()
        assert not re.findall(r"https?://\S*rcrl[_-]?jax\S*", text, re.IGNORECASE), path
        assert not re.findall(r"[\w.+-]+@[\w-]+\.[a-z]{2,}", text), path
    cited = re.findall("^repository-code: (.*)$", (ROOT / "CITATION.cff").read_text(), re.MULTILINE)
    assert cited == ([url] if url else [])
