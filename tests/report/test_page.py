"""The page shows every run, pools nothing that differs, and lets no text of a file become HTML."""

import base64
import collections
import hashlib
import html
import html.parser
import json
import re
import urllib.parse

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rcrl_jax import reference
from rcrl_jax.report import groups, markup, page_figures, paper_sections, svg
from rcrl_jax.results import store
from tests.report import pages
from tests.results import synthetic


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
    root = pages.write_results(tmp_path_factory.mktemp("results") / "some <i>results")
    pages.write_speed(root, pages.HOSTILE)
    return root


@pytest.fixture(scope="module")
def built(results):
    return pages.build(results)


@pytest.fixture(scope="module")
def parsed(built):
    return Parsed(built.html)


def section(text: str, title: str) -> str:
    found = [own for own in text.split("<section>") if f">{title} <" in own]
    return found[0]


def test_every_run_has_a_row_with_its_files_and_manifest(built, parsed, results):
    rows = section(built.html, "All runs")
    assert len(built.runs) == 15 and rows.count("<tr>") == 1 + 15
    links = {urllib.parse.unquote(link) for link in parsed.values("href")}
    for run in built.runs:
        assert f"{run.directory.relative_to(results.parent)}/" in links
    manifests = re.findall(r"<pre>(.*?)</pre>", rows, re.DOTALL)
    assert len(manifests) == 15
    assert json.loads(html.unescape(manifests[0])) == built.runs[0].manifest


def test_unfinished_runs_are_shown_as_such_and_have_no_score(built):
    rows = section(built.html, "All runs").split("<tr>")
    (row,) = (row for row in rows if "unfinished, evaluated at 50,000" in row)
    assert row.count("missing") >= 2  # score and episodes
    assert not built.problems  # it is shown, so it is not left out
    assert "4 seeds, 1 unfinished" in section(built.html, "Learning curves")


def test_hostile_names_stay_text(built, parsed):
    assert not {"img", "b", "i"} & parsed.tags.keys()
    assert parsed.tags["script"] == 1
    assert not [name for _, name, _ in parsed.attributes if name.startswith("on")]
    shown = "".join(parsed.texts)
    assert f"curl(augmentation={pages.SHOWN})" in shown
    assert pages.SHOWN in parsed.texts  # a cell: the backend
    built.html.encode("utf-8")  # no half of a surrogate pair


def test_names_in_figures_are_neither_formulas_nor_elements():
    bar = page_figures.Bar("<b>$x^2$", 0.5, (), svg.MUTED)
    with svg.drawing():
        drawn = svg.inline(page_figures.bars([bar]), '"><b>', "p")
    assert "b" not in Parsed(drawn).tags
    assert "<b>$x^2$" in Parsed(drawn).texts


def test_the_page_asks_for_nothing(built, parsed):
    assert not {"link", "img", "iframe", "image", "object", "base"} & parsed.tags.keys()
    assert not {name for _, name, _ in parsed.attributes} & {"src", "srcset", "style", "xlink:href"}
    assert not re.search(r"https?:|@import|\burl\((?!#)", built.html)
    (policy,) = (value for value in parsed.values("content") if "default-src" in value)
    directives = dict(part.strip().split(" ", 1) for part in policy.split(";"))
    assert directives["default-src"] == "'none'"
    for tag in ("style", "script"):
        (content,) = re.findall(rf"<{tag}>(.*?)</{tag}>", built.html, re.DOTALL)
        digest = base64.b64encode(hashlib.sha256(content.encode()).digest()).decode()
        assert directives[f"{tag}-src"] == f"'sha256-{digest}'"


def test_identifiers_are_unique_and_all_references_have_one(parsed, built):
    identifiers = parsed.values("id")
    assert len(identifiers) == len(set(identifiers))
    targets = [link[1:] for link in parsed.values("href") if link.startswith("#")]
    targets += re.findall(r"url\(#([^)]*)\)", built.html)
    assert targets and set(targets) <= set(identifiers)


def test_two_pages_of_the_same_files_differ_in_the_date_alone(built, results):
    again = pages.build(results, date="tomorrow").html
    assert again != built.html
    assert again.replace("<dd>tomorrow</dd>", "<dd>today</dd>") == built.html


def test_contents_link_to_every_section_in_order(built):
    titles = re.findall(r'<h2 id="([^"]+)">', built.html)
    nav = re.search(r"<nav.*?</nav>", built.html, re.DOTALL)[0]
    assert re.findall(r'href="#([^"]+)"', nav) == titles and len(titles) == 8


def test_a_run_of_the_long_budget_counts_once(tmp_path):
    synthetic.write_run(tmp_path, "rcrl", "Alien", 0, 1000.0, steps=1_500_000)
    written = paper_sections.table_section(store.read_runs(tmp_path).runs)
    assert written.count("(1)") == 2  # in both tables of Atari
    assert "(2)" not in written


def test_sections_without_runs_say_so(tmp_path):
    (tmp_path / "results").mkdir()
    text = pages.build(tmp_path / "results").html
    for title in (
        "Learning curves", "Scores by game", "Profiles and improvement",
        "Segments, similarities, AUCs", "Throughput", "All runs",
    ):  # fmt: skip
        (line,) = re.findall(r'<p class="empty">(.*?)</p>', section(text, title))
        assert "yet" in line
    assert "Nothing is left out." in text


def test_damage_gets_one_line_each_and_the_rest_is_shown(tmp_path):
    root = tmp_path / "results"
    kept = pages.write_run(root, "rcrl", "Pong", 0, 10.0)
    half = synthetic.write_run(root, seed=1) / "scores.json"
    half.write_text(half.read_text()[:40])
    not_a_number = synthetic.write_run(root, seed=2) / "scores.json"
    not_a_number.write_text(not_a_number.read_text().replace("9.0", "NaN", 1))
    synthetic.edit(synthetic.write_run(root, seed=3) / "manifest.json", "run", game="Chess<b>")
    (synthetic.write_run(root, seed=4) / "manifest.json").unlink()
    pages.write_run(root / "copy", "rcrl", "Pong", 0, 11.0)
    measured = pages.write_run(root, "rcrl", "Alien", 5, 10.0)
    (measured / "metrics.jsonl").write_text('{"agent_steps": 1\n{"agent_steps": 2}\n')
    pages.write_speed(root).write_text('{"rcrl": [1]}')
    built = pages.build(root)
    (only,) = built.runs
    assert only.directory == measured
    listed = Parsed(built.html).texts
    for words in (
        "seed_1/scores.json is damaged",
        "seed_2/scores.json",
        "Chess",
        "seed_4/manifest",
        f"{kept} hold the same run",
        "metrics.jsonl, line 1",
        "throughput/cpu.json is damaged",
    ):
        (line,) = (line for line in built.problems if words in line)
        assert "\n" not in line and line in listed
    assert len(built.problems) == 7


def test_numbers_beyond_all_measure_do_not_stop_the_page(tmp_path):
    root = tmp_path / "results"
    run = pages.write_run(root, "rcrl", "Pong", 0, 1e290)
    values = [10**400, float("inf"), "x", None, [1]]
    lines = [{"agent_steps": 10, "cosine_positive": value} for value in values]
    lines += [{"agent_steps": step, "cosine_positive": 0.5} for step in (-1, 10**400, 1.5, "x")]
    lines.append({"agent_steps": 1000, "cosine_positive": 0.125})
    (run / "metrics.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    built = pages.build(root)
    assert built.problems == ()
    assert 'data-value="0.125"' in section(built.html, "Segments, similarities, AUCs")


def test_a_link_is_relative_to_the_page_and_quoted(tmp_path):
    root = tmp_path / "javascript:a b"
    pages.write_run(root, "rcrl", "Pong", 0, 10.0)
    text = pages.build(root).html
    assert 'href="javascript%3Aa%20b/rcrl/Pong/seed_0/"' in text


def runs_of(root):
    return store.read_runs(root, unfinished=True).runs


def test_runs_of_other_conditions_are_other_groups_with_other_names(tmp_path):
    synthetic.write_run(tmp_path, seed=0)
    synthetic.edit(synthetic.write_run(tmp_path, seed=1) / "manifest.json", "run", algorithm=1)
    other = synthetic.write_run(tmp_path, seed=2) / "manifest.json"
    synthetic.edit(other, "environment", sticky_actions=0.25)
    synthetic.write_run(tmp_path, "state_sac", "cheetah_run", 0)
    found = groups.of(runs_of(tmp_path))
    assert sorted(run.seed for group in found for run in group.runs) == [0, 0, 1, 2]
    assert [len(group.runs) for group in found] == [1, 1, 1, 1]
    labels = [group.label for group in found]
    assert len(set(labels)) == 4
    assert any("environment.sticky_actions 0.25" in label for label in labels)
    assert found[-1].runs[0].family == "dmc"


def curves(root, seeds, unfinished=()):
    for seed in seeds:
        synthetic.write_run(root, "rcrl", "Pong", seed, None if seed in unfinished else 10.0 + seed)
    runs = runs_of(root)
    (axes,) = page_figures.learning_curves(runs, groups.styles(runs), []).axes
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


def test_one_seed_has_hollow_points_and_two_have_no_interval(tmp_path):
    (only,) = curves(tmp_path / "one", [0]).lines
    assert only.get_markerfacecolor() == svg.GROUND
    axes = curves(tmp_path / "two", [0, 1])
    assert len(axes.lines) == 3 and not axes.collections


def test_bars_are_human_normalised_means_and_published_ones_are_hollow(tmp_path, built):
    text = section(built.html, "Scores by game")
    score = np.mean([reference.human_normalised("Pong", s) for s in (10, 11, 12)])
    rcrl = reference.human_normalised("Pong", reference.published("Pong", "RCRL"))
    (label,) = re.findall(r'aria-label="(Pong: [^"]*)"', text)
    assert f"rcrl (3) {100 * score:.0f} %" in label
    assert f"RCRL, published {100 * rcrl:.0f} %" in label
    rows = [
        page_figures.Bar("ours", 0.25, (0.2, 0.3), svg.ARMS[0]),
        page_figures.Bar("theirs, published", 0.5, (), svg.MUTED),
    ]
    (axes,) = page_figures.bars(rows).axes
    ours, theirs = axes.patches
    assert (ours.get_width(), theirs.get_width()) == (25, 50)
    assert ours.get_facecolor()[3] > 0 and theirs.get_facecolor()[3] == 0


def test_improvement_counts_games_with_enough_runs_only(built):
    text = section(built.html, "Profiles and improvement")
    # Seeds 10, 11, 12 against 12, 13, 14: only 12 = 12 is no loss, half a pair of nine.
    (row,) = re.findall(r"<tr><th scope=\"row\">.*?</tr>", text)
    estimate, low, high = map(float, re.findall(r'data-value="([^"]+)"', row))
    assert estimate == pytest.approx(0.5 / 9) and 0 <= low < estimate < high < 0.5
    assert "Alien, Pong" in row
    assert "Performance profile on Alien, Pong" in text
    assert "state_sac" not in text


def test_measures_are_means_over_seeds(built):
    text = section(built.html, "Segments, similarities, AUCs")
    assert "length of segments [agent steps] on Pong" in text
    assert "AUC, unseen episodes on Pong" in text
    cells = re.findall(r'<tr><th scope="row">rcrl</th><td class="text">Pong.*?</tr>', text)
    assert len(cells) == 4  # every seed, the unfinished one too
    # `cosine_negative` is null in the file: not measured.
    assert all("missing" in row for row in cells)


def test_speed_has_one_row_a_fleet(built):
    text = section(built.html, "Throughput")
    assert 'data-value="62.125"' in text and ">62.1<" in text
    assert 'data-value="455.2"' in text


@given(st.text(alphabet=st.characters(codec="utf-8")))
def test_a_browser_reads_escaped_text_back(text):
    shown = "".join(c if c.isprintable() or c == "\n" else "?" for c in text)
    parsed = Parsed(markup.element("p", text, title=text))
    assert "".join(parsed.texts) == shown and dict(parsed.tags) == {"p": 1}
    assert parsed.values("title") == [shown]


def test_missing_numbers_are_marked_for_sorting():
    text = markup.table("t", ["a", "b"], [["x", markup.Value(float("nan"), "nan")]])
    assert '<td class="missing">–</td>' in text and "nan" not in text
