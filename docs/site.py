"""Hook of mkdocs.yml: pages from the code, and pages for linked files outside of docs.

The Markdown is that of a plain checkout. README.md becomes the start page. A link to a file or
folder outside of `docs` leads to a page below `repository/`, which is added for it. Headings have
GitHub's anchors.
"""

import pathlib
import posixpath
import re
import subprocess
import sys
from collections.abc import Iterator, Mapping
from typing import Any

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

from rcrl_jax.config import fields, presets

ROOT = pathlib.Path(__file__).parents[1]
PUBLIC = (
    "rcrl_jax.api.train",
    "rcrl_jax.api.load",
    "rcrl_jax.api.scores",
    "rcrl_jax.api.score_matrices",
    "rcrl_jax.trained.Run",
    "rcrl_jax.trained.Player",
    "rcrl_jax.agents.agent.Agent",
    "rcrl_jax.tasks.task.AuxiliaryTask",
    "rcrl_jax.envs.protocol.VectorEnvironment",
)
"""What a program calls; then what a new agent, task or game is made of."""
_COPIED = {".csv", ".gz", ".ipynb", ".json", ".npz", ".png", ".svg", ".xz", ".jsonl"}
_LINK = re.compile(r"(\]\()([^)\s#]+)(#[^)\s]*)?(\))")
_CODE = re.compile(r"(^ *```.*?^ *```)", re.DOTALL | re.MULTILINE)


def on_config(config: MkDocsConfig) -> MkDocsConfig:
    """Sets GitHub's anchors, and the address of the repository if there is one."""
    config.mdx_configs.setdefault("toc", {})["slugify"] = anchor
    config.repo_url = re.search('^URL = "(.*)"', (ROOT / "setup.py").read_text(), re.MULTILINE)[1]
    return config


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Adds the generated pages, README.md, and all that pages link to."""
    generated = {
        "presets.md": presets_page(),
        "programs.md": programs_page(),
        "fields.md": fields_page(),
        "api.md": api_page(),
    }
    for name, content in generated.items():
        files.append(File.generated(config, name, content=content))
    known = {file.src_uri for file in files}
    waiting = ["README.md", "CONTRIBUTING.md", "CHANGELOG.md"]
    waiting += [f"docs/{name}" for name in known if (ROOT / "docs" / name).exists()]
    while waiting:
        path = waiting.pop()
        if (name := place(path)) not in known:
            known.add(name)
            files.append(_file(config, path, name))
        if path.endswith(".md"):
            waiting += [target for target in linked(path) if place(target) not in known]
    return files


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Leads the links of a checkout to the pages of the site."""
    if (path := page.file.src_uri) in ("presets.md", "programs.md", "fields.md", "api.md"):
        return markdown
    path = source(path)
    if path.startswith("results/"):
        page.meta.setdefault("search", {"boost": 0.5})  # below the pages that explain

    def moved(match: re.Match) -> str:
        before, link, heading, after = match.groups()
        if "://" in link or (target := resolve(path, link)) is None:
            return match[0]
        own = posixpath.dirname(place(path))
        return f"{before}{posixpath.relpath(place(target), own or '.')}{heading or ''}{after}"

    return "".join(
        part if part.lstrip().startswith("```") else _LINK.sub(moved, part)
        for part in _CODE.split(markdown)
    )


def anchor(heading: str, separator: str = "-") -> str:
    """What GitHub makes of a heading."""
    del separator
    return re.sub(r"[^\w -]", "", heading.lower()).replace(" ", "-")


def resolve(path: str, link: str) -> str | None:
    """The file or folder of the repository that a link of the file `path` leads to."""
    target = posixpath.normpath(posixpath.join(posixpath.dirname(path), link))
    return target if (ROOT / target).exists() else None


def place(path: str) -> str:
    """Where a file or folder of the repository stands on the site."""
    if path == "README.md":
        return "index.md"
    if path.startswith("docs/"):
        return path.removeprefix("docs/")
    if (ROOT / path).is_dir():
        return place(f"{path}/README.md" if _has_readme(path) else f"{path}/index.md")
    is_page = path.endswith(".md") or pathlib.Path(path).suffix in _COPIED
    return f"repository/{path}" + ("" if is_page else ".md")


def source(name: str) -> str:
    """The file of the repository that a page of the site shows; the inverse of `place`."""
    if name == "index.md":
        return "README.md"
    if name.startswith("repository/"):
        return name.removeprefix("repository/")
    return f"docs/{name}"


def linked(path: str) -> Iterator[str]:
    """The files and folders of the repository that a page links to."""
    text = _CODE.sub("", (ROOT / path).read_text())
    for _, link, _, _ in _LINK.findall(text):
        if "://" not in link and (target := resolve(path, link)) is not None:
            is_file_of_page = (ROOT / target).is_dir() and _has_readme(target)
            yield f"{target}/README.md" if is_file_of_page else target


def _has_readme(folder: str) -> bool:
    return (ROOT / folder / "README.md").exists()


def _file(config: MkDocsConfig, path: str, name: str) -> File:
    """A page or a copied file of the site: Markdown, code, the list of a folder, data."""
    own = ROOT / path
    if own.is_dir():
        tracked = subprocess.run(
            ["git", "ls-files", "."], cwd=own, capture_output=True, text=True, check=False
        ).stdout.split() or sorted(child.name for child in own.iterdir())
        content = "".join(f"* `{one}`\n" for one in tracked)
        return File.generated(config, name, content=f"{_UNSEARCHED}# {path}\n\n{content}")
    if name.removeprefix("repository/") == path or path == "README.md":
        return File.generated(config, name, abs_src_path=str(own))
    kind = {".py": "python", ".toml": "toml", ".cc": "cpp", ".h": "cpp"}.get(own.suffix, "text")
    content = f"{_UNSEARCHED}# {path}\n\n`````{kind}\n{own.read_text()}\n`````\n"
    return File.generated(config, name, content=content)


_PARTS = {"ours", "process"}  # processes that programs start
_UNSEARCHED = "---\nsearch:\n  exclude: true\n---\n"


def table(head: list[str], rows: list[list[str]]) -> str:
    """A table of Markdown; bars within cells are escaped."""
    lines = [head, ["---"] * len(head), *rows]
    return "".join(
        f"| {' | '.join(' '.join(cell.replace('|', '&#124;').split()) for cell in line)} |\n"
        for line in lines
    )


def all_presets() -> dict[str, dict[str, Any]]:
    """Benchmark -> preset -> configuration."""
    return {
        "Atari": presets.atari_presets(),
        "MinAtar": dict(presets.MINATAR_PRESETS),
        "DMControl": presets.control_presets(),
    }


def presets_page() -> str:
    """Each preset as its difference from the defaults of its family."""
    text = "# Presets\n\nMade from `rcrl_jax/config/presets.py`. What each is: contents.md.\n"
    text = text.replace("contents.md", "[what exists](contents.md)")
    for benchmark, own in all_presets().items():
        rows = []
        for name, config in own.items():
            default = fields.values(type(config)())
            changed = {k: v for k, v in fields.values(config).items() if default[k] != v}
            cells = "<br>".join(f"`{k}={v!r}`" for k, v in changed.items())
            rows.append([f"`{name}`", f"`{type(config).__name__}`", cells or "none"])
        text += f"\n## {benchmark}\n\n"
        text += table(["preset", "configuration", "changed from its defaults"], rows)
    return text


def fields_page() -> str:
    """Every field of every configuration: meaning with unit, range, source, default."""
    kinds: Mapping[type, None] = dict.fromkeys(
        type(config) for own in all_presets().values() for config in own.values()
    )
    text = (
        "# Fields\n\nMade from `rcrl_jax/config`. Each is a flag, `--config.NAME`. Presets change "
        "the defaults ([presets](presets.md)).\n\n## Sources\n\n"
    )
    text += table(["source", "what it is"], [[k, v] for k, v in fields.SOURCES.items()])
    for kind in kinds:
        rows = [
            [
                f"`{field.name}`",
                field.metadata["meaning"] + "".join(
                    f"; without effect unless {condition.wanted}" for condition in field.conditions
                ),
                allowed(field),
                field.metadata["source"],
                f"`{field.value!r}`",
            ]
            for field in fields.named_fields(kind())
        ]  # fmt: skip
        text += f"\n## {kind.__name__}\n\n"
        text += table(["field", "meaning", "range", "source", "default"], rows)
    return text


def allowed(field: fields.NamedField) -> str:
    """The range of a field: what its check says of values that are in no range."""
    check = field.metadata["check"]
    kind = type(field.value)
    for value in (-(2**40), -1e60, "?", ("?",)):
        if check and isinstance(value, kind) and (wanted := check(value)):
            return wanted
    return "true or false" if kind is bool else kind.__name__


def programs() -> list[str]:
    """The modules that a user runs with `python -m`."""
    found = []
    for top in ("experiments", "benchmarks"):
        for path in sorted((ROOT / top).rglob("*.py")):
            if 'if __name__ == "__main__":' in path.read_text() and path.stem not in _PARTS:
                parts = path.relative_to(ROOT).with_suffix("").parts
                found.append(".".join(parts).removesuffix(".__main__"))
    return found


def programs_page() -> str:
    """What each program prints with `--help`, without the fields of its presets."""
    done = subprocess.run(
        [sys.executable, "-c", _HELP, *programs()],
        cwd=ROOT, capture_output=True, text=True, check=True,
    )  # fmt: skip
    text = "# Programs\n\nMade from `--help`. Fields of presets: [fields](fields.md).\n"
    for printed in done.stdout.split("\0")[1:]:
        name, _, own = printed.partition("\n")
        own = own.partition("hyperparameters of the preset:")[0].replace(f"{ROOT}/", "")
        text += f"\n## {name}\n\n````text\n{own.strip()}\n````\n"
    return text


# Forks, because importing these takes seconds, and because programs define flags of equal names.
_HELP = """
import os, runpy, sys
import flax.linen, jax, matplotlib.pyplot, optax, pandas
for name in sys.argv[1:]:
    print("\\0" + name, flush=True)
    if not os.fork():
        sys.argv = [name, "--help"]
        runpy.run_module(name, run_name="__main__", alter_sys=True)
    if os.wait()[1]:
        sys.exit("no help of " + name)
"""


def api_page() -> str:
    """What is public, from docstrings."""
    return "# Python\n\n[How to use it](python.md).\n\n" + "".join(
        f"::: {one}\n\n" for one in PUBLIC
    )
