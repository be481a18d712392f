"""The page in a real browser: it sorts, asks for nothing and fits a phone.

Needs Debian's packages chromium and chromium-driver, which `make test` installs where it can.
"""

import json
import shutil

import pytest

from tests.benchmarks.tables import pages

FLAGS = (
    "--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run",
    "--disable-background-networking", "--disable-component-update", "--disable-sync",
)  # fmt: skip


@pytest.fixture(scope="module")
def browser(tmp_path_factory):
    """A browser that shows the page of `pages.write_results`."""
    programs = [shutil.which(name) for name in ("chromium", "chromedriver")]
    if not all(programs):
        pytest.skip("no browser: apt-get install chromium chromium-driver")
    from selenium import webdriver
    from selenium.webdriver.chrome.service import Service

    options = webdriver.ChromeOptions()
    options.binary_location = programs[0]
    for flag in (*FLAGS, f"--user-data-dir={tmp_path_factory.mktemp('profile')}"):
        options.add_argument(flag)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL", "performance": "ALL"})
    started = webdriver.Chrome(options=options, service=Service(programs[1]))
    try:
        root = pages.write_results(tmp_path_factory.mktemp("page") / "results")
        path = root.parent / "report.html"
        path.write_text(pages.build(root).html, encoding="utf-8")
        emulate(started)
        started.get(path.as_uri())
        yield started
    finally:
        started.quit()


def emulate(browser, *, width=1200, scheme="light"):
    browser.execute_cdp_cmd(
        "Emulation.setDeviceMetricsOverride",
        {"width": width, "height": 844, "deviceScaleFactor": 1, "mobile": width < 600},
    )
    feature = {"name": "prefers-color-scheme", "value": scheme}
    browser.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": [feature]})


def script(browser, body, *arguments):
    return browser.execute_script(f"return {body}", *arguments)


def test_the_page_loads_without_errors_and_without_requests(browser):
    assert browser.get_log("browser") == []
    events = [json.loads(line["message"])["message"] for line in browser.get_log("performance")]
    asked = [event["params"] for event in events if event["method"] == "Network.requestWillBeSent"]
    # The browser's own start page asks for its own files.
    own = [request for request in asked if request["documentURL"] == browser.current_url]
    addresses = [request["request"]["url"] for request in own]
    assert [url for url in addresses if not url.startswith("data:")] == [browser.current_url]


def test_every_figure_is_drawn(browser):
    widths = script(browser, "[...document.querySelectorAll('img')].map(i => i.naturalWidth)")
    assert len(widths) > 10 and all(widths)


RUNS = "[...document.querySelectorAll('main > section')].at(-1).querySelector('table')"


def column(browser, number):
    return script(browser, f"[...{RUNS}.tBodies[0].rows].map(r => r.cells[{number}].textContent)")


def sorting(browser):
    return script(browser, f"[...{RUNS}.tHead.rows[0].cells].map(c => c.getAttribute('aria-sort'))")


def test_a_click_sorts_numbers_up_and_down_with_missing_ones_last(browser):
    button = script(browser, f"{RUNS}.tHead.rows[0].cells[4].querySelector('button')")
    for order, reverse in (("ascending", False), ("descending", True)):
        button.click()
        *scores, last = column(browser, 4)
        assert last == "–" and scores == sorted(scores, key=float, reverse=reverse)
        assert len(set(scores)) == 7
        states = sorting(browser)
        assert states.pop(4) == order and set(states) == {"none"}


def test_aggregates_stay_below_the_games(browser):
    table = "document.querySelector('tr.separated').closest('table')"
    before = script(browser, f"[...{table}.rows].map(row => row.cells[0].textContent)")
    script(browser, f"{table}.tHead.rows[0].cells[2].querySelector('button')").click()
    after = script(browser, f"[...{table}.rows].map(row => row.cells[0].textContent)")
    assert after != before
    place = script(browser, f"[...{table}.rows].findIndex(r => r.classList.contains('separated'))")
    assert set(after[:place]) == set(before[:place])


@pytest.mark.parametrize("width", [390, 1200])
def test_the_page_itself_does_not_scroll_sideways(browser, width):
    emulate(browser, width=width)
    browser.execute_script("document.querySelectorAll('details').forEach(d => { d.open = true; })")
    assert script(browser, "document.documentElement.scrollWidth") <= width
    wide = script(
        browser,
        "[...document.querySelectorAll('.scroll')].filter(b => b.scrollWidth > b.clientWidth)"
        ".every(b => getComputedStyle(b).overflowX === 'auto')",
    )
    assert wide
    emulate(browser)


def test_the_page_prints_everything_but_manifests(browser):
    browser.execute_script("document.querySelectorAll('details').forEach(d => { d.open = false; })")
    browser.execute_cdp_cmd("Emulation.setEmulatedMedia", {"media": "print"})
    browser.execute_script("dispatchEvent(new Event('beforeprint'))")
    assert script(
        browser, "[...document.querySelectorAll('main > section > details')].every(d => d.open)"
    )
    display = "getComputedStyle(document.querySelector('td details')).display"
    assert script(browser, display) == "none"
    emulate(browser)
