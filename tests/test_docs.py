"""What the documents name exists: tests, files and configuration fields; shown code is tested."""

import ast
import collections
import graphlib
import pathlib
import re
import signal
import subprocess
import sys
import tomllib

import imageio_ffmpeg
import numpy as np
import pytest

import rcrl_jax
from rcrl_jax.config.fields import named_fields
from rcrl_jax.config.presets import ATARI_PRESETS, DMC_PRESETS, WORLD_MODEL_PRESETS
from rcrl_jax.ops import native
from rcrl_jax.programs.sweeps.spec import make_spec
from tests.programs import programs

ROOT = pathlib.Path(__file__).parents[1]
DECISIONS = ROOT / "docs" / "decisions.md"
EXTENDING = [ROOT / "docs" / f"{name}.md" for name in ("extending", "newtask", "own")]
DOCUMENTS = [
    *(ROOT / name for name in ("README.md", "CONTRIBUTING.md", "CHANGELOG.md")),
    *sorted((ROOT / "docs").glob("*.md")),
    *sorted((ROOT / "results").rglob("README.md")),
    ROOT / "results" / "claim" / "instruments.md",
]
# Without what training writes.
FOLDERS = {path.name for path in ROOT.iterdir() if path.is_dir()} - {"runs"}
TEST_NAME = re.compile(r"(?:(tests/[\w/]+\.py)::)?(test_\w+)")

FIELDS = {
    field.name
    for presets in (ATARI_PRESETS, DMC_PRESETS, WORLD_MODEL_PRESETS)
    for preset in presets.values()
    for field in named_fields(preset)
}
GROUPS = {name.partition(".")[0] for name in FIELDS if "." in name}

of_each_document = pytest.mark.parametrize(
    "document", DOCUMENTS, ids=lambda path: path.relative_to(ROOT).as_posix()
)


def read(document: pathlib.Path) -> str:
    """The text without its blocks of code."""
    return re.sub(r"^ *```.*?^ *```", "", document.read_text(), flags=re.DOTALL | re.MULTILINE)


def quoted(text: str) -> list[str]:
    """What stands in backticks, maybe over the end of a line."""
    return re.findall(r"`([^`]+)`", text)


def files_of_tests() -> dict[str, list[str]]:
    """Name of a test -> the files that define one of this name."""
    files = collections.defaultdict(list)
    for path in sorted((ROOT / "tests").rglob("test_*.py")):
        for name in re.findall(r"^ *def (test_\w+)\(", path.read_text(), re.MULTILINE):
            files[name].append(path.relative_to(ROOT).as_posix())
    return files


@of_each_document
def test_named_tests_exist_and_are_named_unambiguously(document):
    files = files_of_tests()
    wrong = {}
    for match in filter(None, map(TEST_NAME.fullmatch, quoted(read(document)))):
        path, name = match.groups()
        if files[name].count(path) != 1 if path else len(files[name]) != 1:
            wrong[match[0]] = files[name]
    assert not wrong


def is_pinned(text: str) -> bool:
    """Whether a test is named, or the reason is given why there is none."""
    return "not testable: " in text or any(map(TEST_NAME.fullmatch, quoted(text)))


def test_every_decision_names_its_test():
    points = re.findall(r"^\* (.*?)(?=\n\* |\n\n|\Z)", read(DECISIONS), re.MULTILINE | re.DOTALL)
    assert len(points) > 100
    assert not [point for point in points if not is_pinned(point)]


def test_decisions_can_be_read_in_a_terminal():
    assert max(map(len, DECISIONS.read_text().splitlines())) <= 120


@of_each_document
def test_links_and_paths_exist(document):
    text = read(document)
    links = re.findall(r"\]\(([^)#\s]+)(?:#[^)\s]*)?\)", text)
    missing = [
        link for link in links if "://" not in link and not (document.parent / link).exists()
    ]
    for path in (token.partition("::")[0] for token in quoted(text)):
        is_path = re.fullmatch(r"[\w./-]+\.(py|md|toml)", path) or (
            re.fullmatch(r"[\w.-]+/[\w./-]*", path) and path.split("/")[0] in FOLDERS
        )
        # Modules may be named without the folders above them, and kernels may be deleted.
        if (
            is_path
            and (native.FOLDER.exists() or not path.startswith("rcrl_jax/ops/kernels"))
            and not (ROOT / path).exists()
            and not any(
                own for folder in ("rcrl_jax", "benchmarks") for own in (ROOT / folder).rglob(path)
            )
        ):
            missing.append(path)
    assert not missing


def anchors(document: pathlib.Path) -> list[str]:
    """What GitHub makes of the headings: lower case, hyphens for spaces, no punctuation."""
    headings = re.findall(r"^#+ (.+)$", read(document), re.MULTILINE)
    return [re.sub(r"[^\w -]", "", heading.lower()).replace(" ", "-") for heading in headings]


@of_each_document
def test_no_two_headings_have_the_same_anchor(document):
    """GitHub would number them, and a link would lead to the first."""
    repeated = [anchor for anchor, n in collections.Counter(anchors(document)).items() if n > 1]
    assert not repeated


@of_each_document
def test_links_lead_to_headings(document):
    links = re.findall(r"\]\(([\w./-]*\.md)?#([^)\s]+)\)", read(document))
    missing = [
        (path, anchor)
        for path, anchor in links
        if anchor not in anchors(document.parent / path if path else document)
    ]
    assert not missing


def folder_of(module: list[str]) -> str:
    """The row of a module in the table of imports: `rcrl_jax.envs.atari` is of `envs`."""
    if module[0] == "rcrl_jax":
        return module[1]
    return "/".join(module[:2]) if ROOT.joinpath(*module[:2]).is_dir() else module[0]


def test_the_table_of_imports_is_true():
    text = (ROOT / "docs" / "architecture.md").read_text().partition("## (e)")[2]
    rows = dict(re.findall(r"^\| `([\w/]+)` \| (.*) \|$", text, re.MULTILINE))
    told = {
        folder: set(re.sub(r" \([^)]*\)", "", cell).split(", ")) for folder, cell in rows.items()
    }
    found = collections.defaultdict(set)
    for module, others in modules_imported().items():
        if module != "rcrl_jax":
            own = folder_of(tuple(module.split(".")))
            found[own] |= {folder_of(tuple(name.split("."))) for name in others - {"rcrl_jax"}} - {
                own
            }
    found.pop("benchmarks")  # "all that it measures"
    assert told == {folder: others for folder, others in found.items() if others}


def modules_imported() -> dict[str, set[str]]:
    """Module -> the modules of this project that it imports, also inside of functions."""
    tops = ("rcrl_jax", "experiments", "benchmarks")
    paths = [path for top in tops for path in (ROOT / top).rglob("*.py")]
    names = {
        ".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__"): path
        for path in paths
    }
    found = {}
    for module, path in names.items():
        found[module] = set()
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.ImportFrom):
                full = [f"{node.module}.{alias.name}" for alias in node.names]
                found[module] |= {one if one in names else node.module for one in full}
            elif isinstance(node, ast.Import):
                found[module] |= {alias.name for alias in node.names}
        found[module] &= names.keys()
    # Public names, imported at their first use.
    found["rcrl_jax"] -= {"rcrl_jax.api", "rcrl_jax.trained"}
    return found


def test_what_is_installed_imports_nothing_of_a_clone_alone():
    for module, others in modules_imported().items():
        if module.partition(".")[0] == "rcrl_jax":
            assert not [name for name in others if name.partition(".")[0] != "rcrl_jax"], module


def test_no_modules_import_each_other_in_a_circle():
    order = graphlib.TopologicalSorter(modules_imported())
    order.prepare()  # raises CycleError, which names the circle


def needed_by(modules: set[str]) -> set[str]:
    """The modules that these import, directly or not."""
    imported = modules_imported()
    needed, left = set(), set(modules)
    while left:
        new = imported[left.pop()] - needed
        needed |= new
        left |= new
    return needed


# Without the module itself, and without encoders and tasks, which a configuration names.
MOST_FILES = {
    "rainbow.agent": 20,
    "sac.agent": 20,
    "recurrent.dreamer": 20,
    "recurrent.planet": 20,
    "slac.agent": 18,
    "simple.agent": 22,
}


@pytest.mark.parametrize(("agent", "most"), MOST_FILES.items())
def test_an_agent_needs_few_files(agent, most):
    needed = needed_by({f"rcrl_jax.agents.{agent}"})
    assert len(needed) <= most, sorted(needed)


@pytest.mark.parametrize("family", sorted({name.partition(".")[0] for name in MOST_FILES}))
def test_the_folder_of_an_agent_needs_short_files_and_no_other_family(family):
    modules = {name for name in modules_imported() if f".agents.{family}." in name}
    needed = needed_by(modules) | modules
    paths = [ROOT.joinpath(*name.split(".")).with_suffix(".py") for name in needed]
    lines = {path: path.read_text().count("\n") for path in paths if path.exists()}
    assert max(lines.values()) <= 400, lines
    families = {path.name for path in (ROOT / "rcrl_jax" / "agents").iterdir() if path.is_dir()}
    for other in families - {family}:
        assert not [name for name in needed if f".agents.{other}." in name]


def test_functions_of_the_engine_take_at_most_five_arguments():
    """But those that compute what `Agent.act` says, which has seven; and a run fits a screen.

    The loop and its phases take the session whole, not several of its members.
    """
    members = {"environment", "fleet", "replay", "history", "state", "plan", "recording"}
    phases = ("assessment", "experiment", "loop", "recording", "session")
    many, lengths = {}, {}
    for path in sorted((ROOT / "rcrl_jax/training").glob("*.py")):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.FunctionDef):
                arguments = node.args.posonlyargs + node.args.args + node.args.kwonlyargs
                number = sum(argument.arg != "self" for argument in arguments)
                lengths[path.stem, node.name] = node.end_lineno - node.lineno + 1
                if number > 5:
                    many[path.stem, node.name] = number
                if path.stem in phases:
                    assert len(members & {own.arg for own in arguments}) <= 1, node.name
    assert many == {("fleet", "act"): 7}
    assert lengths["experiment", "run"] <= 40


def test_the_guide_to_extending_shows_the_tested_tasks():
    """The document shows the lines between the markers of the test, unchanged."""
    test = ROOT / "tests" / "tasks" / "test_new_task.py"
    blocks = blocks_of_the_guide()
    for marker in ("# [new task]\n", "# [with samples]\n"):
        _, task, _ = test.read_text().split(marker)
        assert [task.rstrip() in block for block in blocks].count(True) == 1


def test_the_guide_to_extending_shows_an_encoder_and_its_entry():
    network, entry = (
        next(block for block in blocks_of_the_guide() if text in block)
        for text in ("class ImpalaEncoder", '"impala": Encoder(')
    )
    assert len(network.splitlines()) <= 15
    (module,) = (ROOT / "rcrl_jax").rglob("impala.py")
    assert network in module.read_text()
    assert entry in (ROOT / "rcrl_jax" / "config" / "choices.py").read_text()


def text_of_the_guide() -> str:
    return "\n".join(page.read_text() for page in EXTENDING)


def blocks_of_the_guide() -> list[str]:
    return re.findall(r"^```python\n(.*?)^```", text_of_the_guide(), re.MULTILINE | re.DOTALL)


def test_an_agent_of_the_guide_trains_the_task_of_the_guide(capsys):
    task, program = (
        next(block for block in blocks_of_the_guide() if text in block)
        for text in ("TASKS = {", "TASKS)\n")
    )
    exec(task + program, {})
    assert np.isfinite(float(capsys.readouterr().out))


def test_the_linter_accepts_the_game_of_the_guide():
    (game,) = (block for block in blocks_of_the_guide() if "def make(" in block)
    assert len(game.splitlines()) <= 10
    for command in (["check", "--quiet", "--ignore=D100"], ["format", "--quiet", "--check"]):
        ruff = [sys.executable, "-m", "ruff", *command, "--stdin-filename=mygame.py", "-"]
        ended = subprocess.run(ruff, cwd=ROOT, input=game, text=True, capture_output=True)
        assert ended.returncode == 0, ended.stdout


def test_the_game_of_the_guide_is_trained_interrupted_resumed_and_told_of(tmp_path):
    """Evaluated with a film, compared with another arm, reported: each command of the guide."""
    (game,) = (block for block in blocks_of_the_guide() if "def make(" in block)
    (tmp_path / "mygame.py").write_text(game)
    train, evaluate, other, compare, report = (
        line.removeprefix("python -m ").split()
        for line in re.findall(r"^python -m .*runs/mygame.*$", text_of_the_guide(), re.M)
    )
    small = "--steps=80 --config.learn_start=40 --config.hidden_size=8 --eval_episodes=2".split()
    with programs.after_a_save():
        stopped = programs.call(*train, *small, directory=tmp_path, checkpoint_period=50)
    assert stopped.returncode == 128 + signal.SIGTERM, stopped.stderr
    done = programs.call(*train, *small, directory=tmp_path)
    assert done.returncode == 0 and "resuming at step 5" in done.stdout, done.stderr
    scored = programs.call(*evaluate, directory=tmp_path)
    assert scored.returncode == 0 and "mean of 20 episodes" in scored.stdout, scored.stderr
    (film,) = (tmp_path / "runs" / "evaluate-rcrl-80").rglob("video.mp4")
    described = [imageio_ffmpeg.get_ffmpeg_exe(), "-i", str(film)]
    assert "320x320" in subprocess.run(described, capture_output=True, text=True).stderr
    assert programs.call(*other, *small, directory=tmp_path).returncode == 0
    changed = "(hidden_size=8, learn_start=40)"
    compare = [word + changed * word.startswith(("--first", "--second")) for word in compare]
    compared = programs.call(*compare, directory=tmp_path)
    assert compared.returncode == 0 and not compared.stderr, compared.stderr
    assert "mygame.make" in compared.stdout and "no reference scores" in compared.stdout
    reported = programs.call(*report, directory=tmp_path)
    assert "runs: 2, left out: 0" in reported.stdout, reported.stderr
    page = (tmp_path / "mygame.html").read_text()
    assert "mygame.make" in page and "Games of one" in page


def test_a_newcomer_s_page_is_short():
    """`test_notebooks.py` runs its code."""
    assert len((ROOT / "README.md").read_text().splitlines()) <= 120


def test_fields_of_the_decisions_exist():
    text = read(DECISIONS)
    named = set(re.findall(r"--config\.([\w.]+)", text))
    for token in quoted(text):
        name = token.partition("=")[0]
        if re.fullmatch(r"\w+\.\w+", name) and name.partition(".")[0] in GROUPS:
            named.add(name)
    assert len(named) > 10
    unknown = named - FIELDS
    assert not unknown


def test_the_search_of_the_guide_is_read_and_its_tuner_goes_on(tmp_path, monkeypatch):
    text = (ROOT / "docs" / "sweeps.md").read_text()
    (listed,) = re.findall(r"```toml\n(.*?)```", text, re.DOTALL)
    assert len(make_spec(tomllib.loads(listed)).units) == 60
    (program,) = re.findall(r"```python\n(import optuna.*?)```", text, re.DOTALL)
    assert len([line for line in program.splitlines() if line]) <= 20
    settings = "eval_episodes=1, learn_start=20, hidden_size=8, max_episode_steps=50"
    for old, new in (
        ("20_000", f"40, {settings}"), ("range(100, 103)", "[100]"), ("n_trials=20", "n_trials=1"),
    ):  # fmt: skip
        assert old in program
        program = program.replace(old, new)
    monkeypatch.chdir(tmp_path)
    for number in range(2):
        tuned = {}
        exec(program, tuned)
        run = rcrl_jax.load(f"runs/search/{number}")
        assert tuned["study"].trials[number].value == run.scores()["score"].mean()
        assert tuned["study"].trials[number].params["n_step"] == run.config.n_step
