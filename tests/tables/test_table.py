"""Every format of a table shows the same numbers, and text from files is never markup."""

import csv
import html.parser
import io
import re

import pytest

from rcrl_jax.tables import table
from rcrl_jax.tables.table import Cell, Column, Row, Table

NASTY = "a|b & 50% $x$ <script>alert(1)</script> [bold]_y_ \\z"
TABLE = Table(
    title="Scores",
    label="game",
    columns=(Column("RCRL", "published"), Column("rcrl", "ours"), Column("Human")),
    rows=(
        Row("Alien", (Cell(854.2, 5), Cell(901.25, 2, best=True), Cell(7127.7))),
        Row("Pong", (Cell(-16.9, 5), Cell(), Cell(14.6))),
        Row("median", (Cell(0.185), Cell(None, None), Cell(1.0)), percent=True, separated=True),
    ),
    notes=("In brackets: seeds.",),
)
HOSTILE = Table(
    NASTY, NASTY, (Column(NASTY, NASTY),), (Row(NASTY, (Cell(1.0, 1),)),), notes=(NASTY,)
)


class Reader(html.parser.HTMLParser):
    """Rows of cells as text, their sort values, and every tag."""

    def __init__(self, text: str):
        super().__init__()
        self.rows, self.values, self.tags = [], [], set()
        self.feed(text)

    def handle_starttag(self, tag, attrs):
        self.tags.add(tag)
        if tag == "tr":
            self.rows.append([])
        if tag in ("th", "td"):
            self.rows[-1].append("")
        if value := dict(attrs).get("data-value"):
            self.values.append(float(value))

    def handle_data(self, data):
        if self.rows and self.rows[-1] and data.strip():
            self.rows[-1][-1] += data


@pytest.mark.parametrize(
    ("row", "cell", "text"),
    [
        ({}, Cell(901.25, 2), "901.2 (2)"),
        ({}, Cell(14.6), "14.6"),
        ({}, Cell(None, 5), "–"),
        ({"digits": 2}, Cell(26), "26"),
        ({"digits": 0}, Cell(923.4, 5, deviation=21.2), "923 ± 21 (5)"),
        ({"percent": True}, Cell(0.1686, 5), "16.9 % (5)"),
        ({"percent": True, "digits": 2}, Cell(0.16862), "16.86 %"),
        ({"percent": True, "digits": 2}, Cell(-0.00001), "0.00 %"),
    ],
)
def test_a_cell_in_words(row, cell, text):
    assert Row("", (), **row).text(cell) == text


def test_the_terminal_shows_every_cell():
    assert table.to_text(TABLE, 100) == (
        "Scores\n"
        "             RCRL        rcrl\n"
        "        published        ours    Human\n"
        "game\n"
        "Alien   854.2 (5)  901.2 (2)*   7127.7\n"
        "Pong    -16.9 (5)           –     14.6\n"
        "median     18.5 %           –  100.0 %\n"
        "In brackets: seeds."
    )


@pytest.mark.parametrize("columns, width", [(10, 100), (16, 80), (16, 40), (3, 24)])
def test_a_wide_table_is_cut_into_blocks_that_hold_every_cell_once(columns, width):
    heads = [Column(f"agent{n // 2}", "ours" if n % 2 else "published") for n in range(columns)]
    rows = [Row(label, [Cell(float(n), 5) for n in range(columns)]) for label in ("Alien", "Pong")]
    text = table.to_text(Table("Scores", "game", heads, rows, ("A note.",)), width=width)
    assert max(map(len, text.splitlines())) <= width and "…" not in text
    for label in ("Alien", "Pong"):
        cells = [
            cell for line in text.splitlines() if label in line
            for cell in re.findall(r"(\d+)\.0 \(5\)", line)
        ]  # fmt: skip
        assert [*map(int, cells)] == [*range(columns)]
    assert text.count("A note.") == 1 and text.count("Scores") == 1


def test_csv_has_deviations_where_there_are_some():
    cells = (Cell(1.5, 2, deviation=0.5), Cell(2.5))
    shown = Table("t", "task", (Column("a", "ours"), Column("b")), (Row("x", cells),))
    assert table.to_csv(shown).splitlines() == [
        'task,a ours,"a ours, seeds","a ours, deviation",b,"b, seeds","b, deviation"',
        "x,1.5,2,0.5,2.5,,",
    ]


def test_csv_holds_exact_values_and_seeds():
    rows = list(csv.reader(io.StringIO(table.to_csv(TABLE))))
    assert rows == [
        ["game", "RCRL published", "RCRL published, seeds", "rcrl ours", "rcrl ours, seeds",
         "Human", "Human, seeds"],
        ["Alien", "854.2", "5", "901.25", "2", "7127.7", ""],
        ["Pong", "-16.9", "5", "", "", "14.6", ""],
        ["median", "0.185", "", "", "", "1.0", ""],
    ]  # fmt: skip


def test_markdown():
    assert table.to_format(TABLE, "md") == (
        "**Scores**\n\n"
        "| game | RCRL published | rcrl ours | Human |\n"
        "| --- | ---: | ---: | ---: |\n"
        "| Alien | 854.2 (5) | **901.2 (2)** | 7127.7 |\n"
        "| Pong | -16.9 (5) | – | 14.6 |\n"
        "| median | 18.5 % | – | 100.0 % |\n"
        "\nIn brackets: seeds.\n"
    )


def test_latex():
    assert table.to_format(TABLE, "tex") == (
        "\\begin{table*}[t]\n\\centering\\small\n\\begin{tabular}{lrrr}\n\\toprule\n"
        "game & RCRL published & rcrl ours & Human \\\\\n\\midrule\n"
        "Alien & 854.2 (5) & \\textbf{901.2 (2)} & 7127.7 \\\\\n"
        "Pong & -16.9 (5) & -- & 14.6 \\\\\n\\midrule\n"
        "median & 18.5 \\% & -- & 100.0 \\% \\\\\n"
        "\\bottomrule\n\\end{tabular}\n\\caption{Scores. In brackets: seeds.}\n\\end{table*}\n"
    )


def test_html_rows_and_sort_values():
    read = Reader(table.to_format(TABLE, "html"))
    assert read.rows[1:] == [
        ["Alien", "854.2(5)", "901.2(2)", "7127.7"],
        ["Pong", "-16.9(5)", "–", "14.6"],
        ["median", "18.5 %", "–", "100.0 %In brackets: seeds."],
    ]
    assert read.values == [854.2, 901.25, 7127.7, -16.9, 14.6, 0.185, 1.0]


def test_text_from_files_is_no_markup_in_any_format():
    read = Reader(table.to_format(HOSTILE, "html"))
    assert "script" not in read.tags and read.rows[1][0] == NASTY
    _, line = list(csv.reader(io.StringIO(table.to_csv(HOSTILE))))
    assert line == [NASTY, "1.0", "1"]
    latex = re.sub(
        r"\\[a-z]+\{\}|\\[&%$#_{}]", "", table.to_format(HOSTILE, "tex").split("midrule")[1]
    )
    assert not set("&%$#_") & set(latex.partition(" & 1.0")[0])
    assert len(re.findall(r"(?<!\\)\|", table.to_format(HOSTILE, "md").splitlines()[2])) == 3
    assert "\x1b" not in table.to_text(TABLE._replace(title="\x1b[31mred"), 100)


def test_text_is_a_cell_that_no_format_rounds():
    shown = Table("t", "run", (Column("game"),), (Row("a", (Cell("<b>Pong</b>"),)),))
    text = table.to_format(shown, "html")
    assert "<td>&lt;b&gt;Pong&lt;/b&gt;</td>" in text
    assert r"\<b\>Pong" in table.to_format(shown, "md")
    assert table.to_csv(shown).splitlines()[1] == "a,<b>Pong</b>,"
