"""The page shows every run, pools nothing that differs, and lets no text of a file become HTML.

In a real browser it sorts, asks for nothing and fits a phone. That needs Debian's packages chromium
and chromium-driver, which `make test` installs where it can.
"""

import base64
import collections
import hashlib
import html
import html.parser
import io
import json
import re
import urllib.parse

import matplotlib
import pytest

from rcrl_jax.tables import command, page, panels, runs
from tests import browser as browsers
from tests.tables import pages, synthetic


class Parsed(html.parser.HTMLParser):
    """Tags, attributes and text of a page, as a browser reads them."""

    def __init__(self, text: str):
        super().__init__()
        self.tags, self.attributes, self.texts = collections.Counter(), [], []
        self.feed(text)

    def handle_starttag(self, tag, attributes):
        self.tags[tag] += 1
        self.attributes += [(tag, name, value) for name, value in attributes]

    def handle_data(self, text):
        self.texts.append(text)

    def values(self, name):
        return [value for _, own, value in self.attributes if own == name]


@pytest.fixture(scope="module")
def results(tmp_path_factory):
    return pages.write_results(tmp_path_factory.mktemp("results") / "javascript:a <i>results")


@pytest.fixture(scope="module")
def built(results):
    return pages.build(results)


@pytest.fixture(scope="module")
def parsed(built):
    return Parsed(built.html)


def read(root):
    return runs.read(root, unfinished=True).frame


def figures(text: str) -> list[str]:
    """The text of all figures of a page, which are SVG."""
    found = re.findall(r'src="data:image/svg\+xml;base64,([^"]+)"', text)
    return [html.unescape(base64.b64decode(figure).decode()) for figure in found]


def section(text: str, title: str) -> str:
    found = [own for own in text.split("<section>") if f">{html.escape(title)} <" in own]
    return found[0]


def test_every_run_has_a_row_with_its_files_and_manifest(built, parsed, results):
    rows = section(built.html, "All runs")
    frame = read(results)
    assert built.runs == len(frame) == 15 and rows.count("<tr>") == 1 + 15
    links = {urllib.parse.unquote(link) for link in parsed.values("href")}
    assert {f"{run.relative_to(results.parent)}/" for run in frame.directory} < links
    manifests = re.findall(r"<pre>(.*?)</pre>", rows, re.DOTALL)
    assert len(manifests) == 15
    assert json.loads(html.unescape(manifests[0])) == frame.manifest[0]


def test_unfinished_runs_are_shown_as_such_and_have_no_score(built):
    rows = section(built.html, "All runs").split("<tr>")
    (row,) = (row for row in rows if "unfinished, evaluated at 50,000" in row)
    assert row.count("missing") == 2  # score and episodes
    assert not built.problems  # it is shown, so it is not left out
    assert "rcrl, 4 seeds, 1 unfinished" in section(built.html, "Learning curves")
    assert "rcrl: 1 run unfinished, in the curves alone." in section(built.html, "Scores")


def test_hostile_names_stay_text(built, parsed):
    assert not {"b", "i"} & parsed.tags.keys()
    assert all(address.startswith("data:image/svg+xml;base64,") for address in parsed.values("src"))
    assert parsed.tags["script"] == 1
    assert not [name for _, name, _ in parsed.attributes if name.startswith("on")]
    assert not [link for link in parsed.values("href") if link.startswith("javascript:")]
    shown = "".join(parsed.texts)
    assert f"curl(augmentation={pages.SHOWN})" in shown
    assert pages.SHOWN in parsed.texts  # a cell: the backend
    built.html.encode("utf-8")  # no half of a surrogate pair


def test_the_page_asks_for_nothing(built, parsed):
    assert not {"link", "iframe", "image", "object", "base"} & parsed.tags.keys()
    assert not {name for _, name, _ in parsed.attributes} & {"srcset", "style", "xlink:href"}
    assert not re.search(r"https?:|@import|\burl\((?!#)", built.html)
    (policy,) = (value for value in parsed.values("content") if "default-src" in value)
    directives = dict(part.strip().split(" ", 1) for part in policy.split(";"))
    assert (directives["default-src"], directives["img-src"]) == ("'none'", "data:")
    for tag in ("style", "script"):
        (content,) = re.findall(rf"<{tag}>(.*?)</{tag}>", built.html, re.DOTALL)
        digest = base64.b64encode(hashlib.sha256(content.encode()).digest()).decode()
        assert directives[f"{tag}-src"] == f"'sha256-{digest}'"


def test_two_pages_of_the_same_files_differ_in_the_date_alone(built, results):
    again = pages.build(results, date="tomorrow").html
    assert again != built.html
    assert again.replace("<dd>tomorrow</dd>", "<dd>today</dd>") == built.html


def test_contents_link_to_every_section_in_order(built):
    titles = re.findall(r'<h2 id="([^"]+)">', built.html)
    nav = re.search(r"<nav.*?</nav>", built.html, re.DOTALL)[0]
    assert re.findall(r'href="#([^"]+)"', nav) == titles and len(titles) == 5


def test_arms_of_dmcontrol_have_their_own_conditions_and_verdicts_the_budget_of_most_runs(tmp_path):
    root = tmp_path / "results"
    changes = {"batch_size": 128}
    for preset in ("rcrl_sac", "sac_aug"):
        synthetic.write_run(root, preset, "cheetah_run", 0, 5.0, steps=25_000, changes=changes)
    synthetic.write_run(root / "long", "state_sac", "cheetah_run", 0, 5.0, steps=125_000)
    synthetic.write_run(root / "short", "state_sac", "cheetah_run", 0, 5.0, steps=300)
    for preset, steps, episodes in (("dreamer", 250, 10), ("planet", 1000, 4)):
        synthetic.write_run(root, preset, "walker_walk", 0, 5.0, steps=steps, episodes=episodes)
    frame = read(root)
    shown = command.fill(command.PAPER["figure_dmc"], frame)
    assert [c.name for c in shown.table.columns if c.source == "ours"] == [
        "state_sac",
        "sac_aug(batch_size=128)",
        "dreamer",
        "planet",
        "rcrl_sac(batch_size=128)",
    ]
    assert 1200 not in {*shown.runs.env_steps}
    (note,) = [line for line in shown.table.notes if "differ in final_episodes" in line]
    assert note.endswith(" 4 (planet).") and note.count("dreamer") == 1
    (verdict, _) = shown.judged
    assert verdict.pairs == 1
    assert "with batch_size=128 after 100,000" in verdict.sentence
    (line,) = shown.left_out
    assert line.startswith("1 run left out: env_steps is 1200, not 500000 as in the 1 run kept")
    of_budget = command.fill(command.PAPER["figure_dmc"], frame, budgets=[1200])
    assert [*of_budget.runs.preset] == ["state_sac"]
    assert of_budget.left_out[0].startswith("runs of other budgets left out, ")


NAMED = {
    "short": {"batch_size": 8, "return_contrast.batch_size": 8},
    "long_windows": {"n_step": 7},
    "small": {"hidden_size": 16, "return_contrast.discriminator_hidden": 16},
}


@pytest.fixture(scope="module")
def own(tmp_path_factory):
    """A page of three named arms on two small games, three seeds each."""
    root = tmp_path_factory.mktemp("own") / "results"
    for number, (arm, changes) in enumerate(NAMED.items()):
        for game in ("Breakout", "Asterix"):
            for seed in range(3):
                of_run = {"steps": 6000, "changes": changes, "arm": arm}
                score = 100.0 * number + 13 * seed
                synthetic.write_run(root / arm, "minatar_rcrl", game, seed, score, **of_run)
    return pages.build(root)


def test_own_runs_come_first_and_what_has_none_is_folded(own, built):
    """Claims without pairs and tables without runs lie in two closed blocks."""
    titles = re.findall(r'<h2 id="[^"]+">(.*?) <a', own.html)
    assert titles[:2] == ["Scores", "Learning curves"]
    shown = re.sub(r"<details>.*?</details>", "", own.html, flags=re.DOTALL)
    for words in ("undecided", "Atari", "DMControl", "published</small>"):
        assert words not in shown
    paper = section(own.html, "Claims and tables of the paper")
    folded = re.findall(r"<details><summary>(.*?)</summary>", paper)
    assert folded == ["Claims without pairs of runs: 9", "Published tables without runs: 3"]
    # The other page has pairs of one claim, and runs for two of the tables.
    paper, _, rest = section(built.html, "Claims and tables of the paper").partition("<details>")
    assert paper.count("<li>") == 1 and "rcrl &gt; erainbow_sa" in paper
    assert paper.count("<table") + rest.count("<table") == 3 and paper.count("<img") == 1
    (head,) = re.findall("Atari-100k.*?</thead>", paper, re.DOTALL)
    sources = re.findall(r"<small>(\w*)</small>", head)
    assert sources[:2] == ["ours"] * 2 and "ours" not in sources[2:]


def test_arms_have_one_legend_with_the_settings_of_each(own):
    legend = re.search(r'<ul class="legend">.*?</ul>', own.html, re.DOTALL)[0]
    names = re.findall("<strong>(.*?)</strong> (.*?)<", legend)
    assert {name for name, _ in names} == {*NAMED}
    colors = re.findall('stroke="(#[0-9a-f]{6})"', legend)
    assert len({*colors}) == 3
    for _, settings in names:
        assert own.html.count(settings) == 1
    texts = [text for own in figures(own.html) for text in re.findall(r"<text[^>]*>(.*?)<", own)]
    assert texts and not [text for text in texts if "short" in text]


def test_scores_of_three_arms_on_games_without_references(own):
    text = re.sub("<[^>]+>", " ", section(own.html, "Scores"))
    assert "113.0 ± 13.0 (3)" in " ".join(text.split())  # of the second arm
    assert "These games have no reference scores: nothing is normalised." in text
    assert "Probability of improvement" in text and "HNS" not in text


def test_estimates_over_games_are_tables_and_figures(built):
    text = section(built.html, "Scores")
    for title in ("Over 2 games, in HNS", "Performance profiles", "Sample efficiency"):
        assert text.count(f"<figcaption>{title}<") == 1


def test_sections_without_runs_say_so(tmp_path):
    (tmp_path / "results").mkdir()
    text = pages.build(tmp_path / "results").html
    for title in ("Scores", "Learning curves", "Segments, similarities, AUCs", "All runs"):
        (line,) = re.findall(r'<p class="empty">(.*?)</p>', section(text, title))
        assert "yet" in line
    assert "Nothing is left out." in text


def test_damage_gets_one_line_each_and_the_rest_is_shown(tmp_path):
    """Numbers beyond all measure are no damage, and do not stop the page."""
    root = tmp_path / "results"
    run = pages.write_run(root, "rcrl", "Pong", 0, 1e290)
    lines = [
        {"agent_steps": step, "wall_s": 0.0, "cosine_positive": value}
        for step, value in ((10, 1e299), (10, None), (1000, 0.125))
    ]
    synthetic.write_lines(run / "metrics.jsonl", lines)
    half = synthetic.write_run(root, seed=1) / "scores.json"
    half.write_text(half.read_text()[:40])
    synthetic.edit(synthetic.write_run(root, seed=3) / "manifest.json", "run", game="Chess<b>")
    torn = pages.write_run(root, "rcrl", "Alien", 5, 10.0)
    (torn / "metrics.jsonl").write_text('{"agent_steps": 1\n{"agent_steps": 2}\n')
    built = pages.build(root)
    assert built.runs == 1 and f'title="results/{run.relative_to(root)}"' in built.html
    listed = Parsed(built.html).texts
    for words in ("seed_1/scores.json is damaged", "Chess", "metrics.jsonl, line 1"):
        (line,) = (line for line in built.problems if words in line)
        assert "\n" not in line and line in listed
    assert len(built.problems) == 3
    points, _ = runs.read_measures(read(root))
    assert points.cosine_positive.dropna().to_list() == [0.125]


def test_runs_of_other_conditions_are_other_groups_with_other_names(tmp_path):
    synthetic.write_run(tmp_path, seed=0)
    synthetic.edit(synthetic.write_run(tmp_path, seed=1) / "manifest.json", "run", algorithm=1)
    other = synthetic.write_run(tmp_path, seed=2) / "manifest.json"
    synthetic.edit(other, "environment", sticky_actions=0.25)
    synthetic.write_run(tmp_path, "state_sac", "cheetah_run", 0)
    labels, found = zip(*page.pool_labels(read(tmp_path)), strict=True)
    assert [len(own) for own in found] == [1, 1, 1, 1] and len(set(labels)) == 4
    assert any("environment.sticky_actions 0.25" in label for label in labels)
    assert [*found[-1].family] == ["dmc"]


def curves(root, seeds, unfinished=()):
    for seed in seeds:
        synthetic.write_run(root, "rcrl", "Pong", seed, None if seed in unfinished else 10.0 + seed)
    (axes,) = panels.learning_curves(read(root), panels.styles(["rcrl"])).axes
    return axes


def test_the_mean_is_of_finished_seeds_and_three_have_an_interval(tmp_path):
    axes = curves(tmp_path, range(4), unfinished=[3])
    *seeds, mean = axes.lines
    assert len(seeds) == 4
    assert mean.get_xydata().tolist() == [[500, 2.0], [1000, 11.0]]
    (band,) = axes.collections
    (path,) = band.get_paths()
    ends = path.vertices[path.vertices[:, 0] == 1000, 1]
    # Means of three draws out of 10, 11, 12: 1 of 27 is the lowest, more than 2.5 %.
    assert (ends.min(), ends.max()) == (10, 12)
    assert panels.describe(read(tmp_path)) == "rcrl, 4 seeds, 1 unfinished"


def test_a_diverged_seed_is_drawn_and_not_in_the_mean(tmp_path):
    directory = synthetic.write_run(tmp_path, "rcrl", "Pong", 9, None)
    synthetic.write_json(directory / "diverged.json", {"attempts": 2})
    axes = curves(tmp_path, range(2))
    *seeds, mean = axes.lines
    assert len(seeds) == 3 and mean.get_xydata().tolist() == [[500, 2.0], [1000, 10.5]]
    assert panels.describe(read(tmp_path)) == "rcrl, 3 seeds, 1 diverged"


def test_one_seed_has_hollow_points_and_two_have_no_interval(tmp_path):
    (only,) = curves(tmp_path / "one", [0]).lines
    assert only.get_markerfacecolor() == "white"
    axes = curves(tmp_path / "two", [0, 1])
    assert len(axes.lines) == 3 and not axes.collections


@pytest.mark.parametrize("game, seed", [("Hero", 0), ("Pong", 100)])  # of either list
def test_pre_registered_runs_have_no_interval(tmp_path, game, seed):
    for root, steps in ((tmp_path / "other", 99_000), (tmp_path / "listed", 100_000)):
        for own in range(seed, seed + 3):
            synthetic.write_run(root, "rcrl", game, own, 10.0 + own, steps=steps)
        (axes,) = panels.learning_curves(read(root), panels.styles(["rcrl"])).axes
        assert len(axes.lines) == 4 and bool(axes.collections) == (steps == 99_000)


def test_a_figure_is_laid_out_as_savefig_does_it_with_fewer_draws(tmp_path, monkeypatch):
    for seed in range(3):
        synthetic.write_run(tmp_path, "rcrl", "Pong", seed, 10.0 + seed)
    draws, draw = [], matplotlib.axes.Axes.draw
    monkeypatch.setattr(matplotlib.axes.Axes, "draw", lambda *of: draws.append(of) or draw(*of))
    with panels.drawing():
        figures = [panels.learning_curves(read(tmp_path), panels.styles(["rcrl"])) for _ in "ab"]
        uri = panels.to_uri(figures[0])
        assert len(draws) == 1
        file = io.BytesIO()
        empty = dict.fromkeys(("Date", "Creator", "Format", "Type"))
        figures[1].savefig(file, format="svg", metadata=empty)
    assert base64.b64decode(uri.partition(",")[2]) == file.getvalue()


def test_every_arm_has_a_look_of_its_own():
    looks = panels.styles([f"arm {number}" for number in range(12)])
    assert len({look.color for look in looks.values()}) == 10
    assert len(set(looks.values())) == 12


def test_measures_are_means_over_seeds_with_the_clock_beside_each_auc(built, tmp_path, monkeypatch):
    """A run that recorded no clock is drawn without it."""
    text = section(built.html, "Segments, similarities, AUCs")
    assert "length of segments [agent steps] on Pong" in text
    for seed in range(2):
        path = pages.write_run(tmp_path, "rcrl", "Pong", seed, 10.0) / "evaluations.jsonl"
    lines = [json.loads(line) for line in path.read_text().splitlines()]
    synthetic.write_lines(path, [line | {"unseen_auc_clock": 0.625} for line in lines])
    points, problems = runs.read_measures(read(tmp_path))
    made, make = [], panels._panel
    monkeypatch.setattr(panels, "_panel", lambda *of: made.append(of) or make(*of))
    drawn = dict(panels.measures(points, panels.styles(["rcrl"])))
    assert len(made) == len(drawn)  # an empty figure takes as long as a full one
    assert not problems and [*drawn] == [
        "length of segments [agent steps]",
        "cosine to the anchor, training batches",
        "AUC, all pairs, unseen episodes",
    ]
    segments, cosines, aucs = (
        {line.get_label(): [*line.get_ydata()] for line in figure.axes[0].lines}
        for figure in drawn.values()
    )
    assert segments == {"rcrl (2), median": [20.5, 20.5]}
    assert [*cosines] == ["rcrl (2), positives"]  # `cosine_negative` is null in every file
    assert aucs["rcrl (2), the discriminator"] == [0.75, 0.75]
    assert aucs["rcrl (1), a clock, on the same pairs"] == [0.625, 0.625]


# --- in a browser -----------------------------------------------------------------------------


@pytest.fixture(scope="module")
def browser(built, results, tmp_path_factory):
    """A browser that shows the page."""
    started = browsers.start(tmp_path_factory.mktemp("profile"))
    try:
        path = results.parent / "report.html"
        path.write_text(built.html, encoding="utf-8")
        emulate(started)
        started.get(path.as_uri())
        yield started
    finally:
        started.quit()


def emulate(browser, *, width=1200, scheme="light"):
    browsers.resize(browser, width)
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


def test_estimates_with_intervals_are_sorted_as_numbers(browser):
    texts = ["-1.200 [-2.0, -0.4]", "-0.503 [-0.9, -0.1]", "-0.100", "0.030 [0.0, 0.1]", "0.250"]
    cell = "Object.assign(document.createElement('td'), {textContent: t})"
    made = f"{texts[::-1]}.map(t => {cell})"
    assert script(browser, f"{made}.sort(compare).map(cell => cell.textContent)") == texts


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


SIZES = """[...document.querySelectorAll('.panels img')].map(i => {
  const svg = atob(i.src.split(',')[1]);
  const sizes = [...svg.matchAll(/<text[^>]*font(?:-size)?: (?:[\\d]+ )?([\\d.]+)px/g)];
  return Math.min(...sizes.map(s => s[1])) * i.width / svg.match(/viewBox="0 0 ([\\d.]+)/)[1];
})"""
OUTSIDE = """[...document.querySelectorAll('body *')].filter(
  e => !e.closest('.scroll') && e.getBoundingClientRect().right > innerWidth).length"""
CUT = "[...document.querySelectorAll('.own .scroll')].filter(b => b.scrollWidth > b.clientWidth)"


@pytest.mark.parametrize("width", [400, 1280])
def test_own_runs_fit_the_screen_and_their_figures_are_read(browser, own, tmp_path, width):
    before = browser.current_url
    path = tmp_path / "own.html"
    path.write_text(own.html, encoding="utf-8")
    emulate(browser, width=width)
    browser.get(path.as_uri())
    assert script(browser, OUTSIDE) == 0 and script(browser, f"{CUT}.length") == 0
    sizes = script(browser, SIZES)
    assert len(sizes) >= 4 and min(sizes) >= 11
    emulate(browser)
    browser.get(before)


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
