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

from benchmarks.tables import measures, panels, rendering, runs, sections
from benchmarks.tables.panels import Bar
from rcrl_jax import reference
from tests.benchmarks.tables import pages, synthetic


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


def read(root):
    return runs.read(root, unfinished=True).frame


def figures(text: str) -> list[str]:
    """The text of all figures of a page, which are SVG."""
    found = re.findall(r'src="data:image/svg\+xml;base64,([^"]+)"', text)
    return [html.unescape(base64.b64decode(figure).decode()) for figure in found]


def section(text: str, title: str) -> str:
    found = [own for own in text.split("<section>") if f">{title} <" in own]
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
    assert row.count("missing") >= 2  # score and episodes
    assert not built.problems  # it is shown, so it is not left out
    assert any("4 seeds, 1 unfinished" in figure for figure in figures(built.html))


def test_hostile_names_stay_text(built, parsed):
    assert not {"b", "i"} & parsed.tags.keys()
    assert all(address.startswith("data:image/svg+xml;base64,") for address in parsed.values("src"))
    assert parsed.tags["script"] == 1
    assert not [name for _, name, _ in parsed.attributes if name.startswith("on")]
    shown = "".join(parsed.texts)
    assert f"curl(augmentation={pages.SHOWN})" in shown
    assert pages.SHOWN in parsed.texts  # a cell: the backend
    built.html.encode("utf-8")  # no half of a surrogate pair


def test_names_in_figures_are_neither_formulas_nor_elements():
    with panels.drawing():
        address = panels.to_uri(panels.bars([Bar("<b>$x^2$", 0.5, ())]))
    drawn = base64.b64decode(address.partition(",")[2]).decode()
    assert "b" not in Parsed(drawn).tags
    assert "<b>$x^2$" in Parsed(drawn).texts


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
    assert re.findall(r'href="#([^"]+)"', nav) == titles and len(titles) == 8


def test_a_run_of_the_long_budget_counts_once(tmp_path):
    synthetic.write_run(tmp_path, "rcrl", "Alien", 0, 1000.0, steps=1_500_000)
    shown = sections.paper_tables(read(tmp_path)).tables
    seeds = [cell.seeds for table in shown for row in table.rows for cell in row.cells]
    assert [count for count in seeds if count] == [1, 1]  # in both tables of Atari


def test_verdicts_and_table_of_control_have_the_budget_of_most_runs(tmp_path):
    """One rule for both, so that no run is in neither."""
    for preset in ("rcrl_sac", "sac_aug"):
        synthetic.write_run(tmp_path, preset, "cheetah_run", 0, 5.0, steps=25_000)
    synthetic.write_run(tmp_path / "long", "state_sac", "cheetah_run", 0, 5.0, steps=37_500)
    frame = read(tmp_path)
    (verdict,) = (v for v in sections.judged(frame).verdicts if "sac_aug" in v["sentence"])
    assert "after 100,000 environment steps" in verdict["sentence"]
    assert "so far 1 pair of runs" in verdict["sentence"]
    *_, table = sections.paper_tables(frame).tables
    assert [c.name for c in table.columns if c.source == "ours"] == ["sac_aug", "rcrl_sac"]
    assert any("1 of 150,000 steps" in note for note in table.notes)


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
    assert built.runs == 1 and f'title="results/{measured.relative_to(root)}"' in built.html
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
    synthetic.write_lines(run / "metrics.jsonl", lines)
    built = pages.build(root)
    assert built.problems == ()
    assert 'data-value="0.125"' in section(built.html, "Segments, similarities, AUCs")


def test_a_link_is_relative_to_the_page_and_quoted(tmp_path):
    root = tmp_path / "javascript:a b"
    pages.write_run(root, "rcrl", "Pong", 0, 10.0)
    text = pages.build(root).html
    assert 'href="javascript%3Aa%20b/rcrl/Pong/seed_0/"' in text


def test_runs_of_other_conditions_are_other_groups_with_other_names(tmp_path):
    synthetic.write_run(tmp_path, seed=0)
    synthetic.edit(synthetic.write_run(tmp_path, seed=1) / "manifest.json", "run", algorithm=1)
    other = synthetic.write_run(tmp_path, seed=2) / "manifest.json"
    synthetic.edit(other, "environment", sticky_actions=0.25)
    synthetic.write_run(tmp_path, "state_sac", "cheetah_run", 0)
    labels, found = zip(*sections.pool_labels(read(tmp_path)), strict=True)
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


def test_one_seed_has_hollow_points_and_two_have_no_interval(tmp_path):
    (only,) = curves(tmp_path / "one", [0]).lines
    assert only.get_markerfacecolor() == "white"
    axes = curves(tmp_path / "two", [0, 1])
    assert len(axes.lines) == 3 and not axes.collections


def test_a_curve_and_its_mean_have_one_entry_in_the_legend(tmp_path):
    (text,) = curves(tmp_path, range(3)).get_legend().get_texts()
    assert text.get_text() == "rcrl, 3 seeds"


def test_the_first_arms_differ_in_colour():
    looks = panels.styles([f"arm {number}" for number in range(12)])
    assert len({look.color for look in looks.values()}) == 10
    assert len(set(looks.values())) == 12


def test_bars_are_human_normalised_means_and_published_ones_are_hollow(built):
    text = section(built.html, "Scores by game")
    score = np.mean([reference.human_normalised("Pong", s) for s in (10, 11, 12)])
    rcrl = reference.human_normalised("Pong", reference.published("Pong", "RCRL"))
    (label,) = re.findall(r'alt="([^"]* on Pong)"', text)
    assert f"rcrl (3) {100 * score:.0f} %" in label
    assert f"RCRL, published {100 * rcrl:.0f} %" in label
    (axes,) = panels.bars([Bar("ours", 0.25, (0.2, 0.3), "red"), Bar("theirs", 0.5, ())]).axes
    ours, theirs = axes.patches
    assert (ours.get_width(), theirs.get_width()) == (25, 50)
    assert ours.get_facecolor()[3] > 0 and theirs.get_facecolor()[3] == 0


def test_improvement_counts_games_with_enough_runs_only(built):
    text = section(built.html, "Profiles and improvement")
    # Seeds 10, 11, 12 against 12, 13, 14: only 12 = 12 is no loss, half a pair of nine.
    (row,) = re.findall(r"<tr><th scope=\"row\">.*?</tr>", text, re.DOTALL)
    estimate, low, high = map(float, re.findall(r'data-value="([^"]+)"', row))
    assert estimate == pytest.approx(0.5 / 9) and 0 <= low < estimate < high < 0.5
    assert "Alien, Pong" in row
    assert "Performance profile on Alien, Pong" in text
    assert "state_sac" not in text


def test_measures_are_means_over_seeds(built, results):
    text = section(built.html, "Segments, similarities, AUCs")
    assert "length of segments [agent steps] on Pong" in text
    assert "AUC, all pairs, unseen episodes on Pong" in text
    points = measures.read(read(results), [])
    pong = points[(points.game == "Pong") & (points.arm == "rcrl") & (points.seed < 3)]
    mean = measures.mean_of_runs(pong, "segment_length_p50")
    assert mean.to_dict() == {1000: 21.0, 2000: 21.0}
    rows = re.findall(r'<th scope="row">rcrl</th>\s*<td class="text">Pong', text)
    assert len(rows) == 4  # every seed, the unfinished one too
    # `cosine_negative` is null in every file: no column.
    assert "cosine, positives" in text and "cosine, negatives" not in text


def test_the_clock_and_matched_time_stand_beside_each_auc(tmp_path):
    """An older run recorded neither, and is shown without them."""
    new = synthetic.write_run(tmp_path, seed=0)
    synthetic.write_run(tmp_path, seed=1)
    path = new / "evaluations.jsonl"
    lines = [json.loads(line) for line in path.read_text().splitlines()]
    nulls = {"unseen_auc_clock": 0.625, "unseen_auc_matched_time": 0.5}
    synthetic.write_lines(path, [line | nulls for line in lines])
    points = measures.read(read(tmp_path), [])
    table = measures.last_values(points)
    heads = [column.name for column in table.columns]
    assert heads == ["game", "seed", "AUC, all pairs", "its clock", "at matched time"]
    assert [[cell.value for cell in row.cells] for row in table.rows] == [
        ["Pong", 0, 0.75, 0.625, 0.5], ["Pong", 1, 0.75, None, None]
    ]  # fmt: skip
    ((label, figure),) = measures.game_panels(points, panels.styles(["rcrl"]))
    assert label == "AUC, all pairs, unseen episodes"
    drawn = {line.get_label(): line.get_ydata()[-1] for line in figure.axes[0].lines}
    assert drawn["rcrl (2), the discriminator"] == 0.75
    assert drawn["rcrl (2), a clock, on the same pairs"] == 0.625
    assert drawn["rcrl (2), the discriminator at matched time"] == 0.5


def test_speed_has_one_row_a_fleet(built):
    text = section(built.html, "Throughput")
    assert 'data-value="62.125"' in text and 'data-value="455.2"' in text


@given(st.text(alphabet=st.characters(codec="utf-8")))
def test_a_browser_reads_escaped_text_back(text):
    shown = "".join(c if c.isprintable() or c == "\n" else "?" for c in text)
    source = rendering._environment().from_string('<p title="{{ text }}">{{ text }}</p>')
    parsed = Parsed(source.render(text=text))
    assert "".join(parsed.texts) == shown and dict(parsed.tags) == {"p": 1}
    assert parsed.values("title") == [shown]
