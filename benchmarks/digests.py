"""Writes results/digests.txt: a digest of every file of every recorded run, except pictures.

    python -m benchmarks.digests                # all runs, from the repository's history
    python -m benchmarks.digests --runs=RUN,RUN # adds runs that have just been recorded

The scores of a run hold digests of the run's records. But older scores hold none, and scores can be
edited, too. So this file has the digest of every file at its first commit, even if the file was
moved since. The tables refuse a run if a file differs from its digest. One commit rewrote manifests
on purpose and counts instead of the first one; a comment in the file says for how many. If a file
differs from its digest today, the program names it on standard error and exits with 1.

The second form adds files as they are on disk; `campaigns/collected` calls it. It first packs new
runs of MinAtar, which are many and have thousands of episodes: it compresses their metrics and
deletes pictures and, unless `campaigns/parameters` names the run, parameters. Both forms print the
file that they change. `sha256sum --check digests.txt`, run in `results`, compares all files.
"""

import hashlib
import json
import lzma
import pathlib
import subprocess
import sys
from collections.abc import Sequence

from absl import flags

from rcrl_jax import files
from rcrl_jax.programs import command_line
from rcrl_jax.runs import manifest, records
from rcrl_jax.runs.paths import PARAMETERS

flags.DEFINE_list("runs", [], "directories of recorded runs, to add them; all runs without it")

ROOT = pathlib.Path(__file__).parents[1]
REWRITING = "Convert old manifests to today's fields; retire runs that decide nothing"
"""Subject of the commit that rewrote manifests on purpose."""
_OF_TEXT = [{"id": lzma.FILTER_LZMA2, "preset": 9 | lzma.PRESET_EXTREME, "pb": 0}]


def write(given: flags.FlagValues) -> None:
    """Writes the file."""
    path = ROOT / "results" / records.DIGESTS
    digests, comments = with_runs(path, given.runs) if given.runs else from_history(ROOT)
    lines = [f"# {comment}" for comment in comments]
    lines += [f"{digest}  {name}" for name, digest in sorted(digests.items())]
    with files.replacing(path) as partial:
        partial.write_text("\n".join(lines) + "\n", encoding="utf-8")
    print(path.relative_to(ROOT))
    if not given.runs and (differing := differences(path)):
        print(*differing, sep="\n", file=sys.stderr)
        sys.exit(1)


def differences(path: pathlib.Path) -> list[str]:
    """One line for each file that is gone, or differs from its digest in the file of digests."""
    return [
        f"{path.parent / name} differs from its digest"
        for name, digest in records.read_digests(path).items()
        if not (file := path.parent / name).exists() or records.digest_of(file) != digest
    ]


def from_history(root: pathlib.Path) -> tuple[dict[str, str], list[str]]:
    """The digests of the recorded files of all committed runs, from their first commits.

    Args:
        root: of the repository.

    Returns:
        Path below results -> SHA-256; and a comment on the files whose digest is that of a later
        commit.

    Raises:
        OSError: there is no git, or no history.
    """

    def git(*arguments: str) -> bytes:
        try:
            command = ["git", "-C", str(root), *arguments]
            return subprocess.run(command, check=True, capture_output=True).stdout
        except subprocess.CalledProcessError as error:
            raise OSError(f"git {arguments[0]}: {error.stderr.decode().strip()}") from None

    first: dict[str, str] = {}  # path -> blob
    rewritten = set()
    history = git(
        "log", "--reverse", "--topo-order", "--full-history", "--raw", "--no-abbrev",
        "--find-renames=100%", "-l0", "--format=commit %s", "--", "results",
    )  # fmt: skip
    for line in history.decode().splitlines():
        if line.startswith("commit "):
            subject = line.removeprefix("commit ")
        if not line.startswith(":"):
            continue
        change, *paths = line.split("\t")
        *_, blob, status = change.split()
        if status == "A":
            first.setdefault(paths[0], blob)
        elif status == "D":
            first.pop(paths[0], None)
        elif status.startswith("R"):
            before = first.pop(paths[0], blob)
            # An unfinished run's files grow from commit to commit.
            first[paths[1]] = blob if "/unfinished/" in paths[0] else before
        elif subject == REWRITING and paths[0].endswith("/manifest.json"):
            first[paths[0]] = blob
            rewritten.add(paths[0])
    tracked = git("ls-files", "-z", "results").decode().split("\0")[:-1]
    runs = {str(pathlib.PurePath(p).parent) for p in tracked if p.endswith("/manifest.json")}
    own = [
        path
        for path in map(pathlib.PurePath, tracked)
        if str(path.parent) in runs and path.suffix in records.RECORDED
    ]
    digests = {}
    for path in own:
        content = git("cat-file", "blob", first[str(path)])
        digests[str(path.relative_to("results"))] = hashlib.sha256(content).hexdigest()
    number = len(rewritten & {*map(str, own)})
    return digests, [f"{number} manifests: of commit '{REWRITING}'"] if number else []


def with_runs(path: pathlib.Path, runs: Sequence[str]) -> tuple[dict[str, str], list[str]]:
    """The digests in a file, and those of further runs as they are on disk.

    Args:
        path: the file of digests.
        runs: directories below its own.

    Returns:
        As `from_history`.

    Raises:
        ValueError: a directory is no run there, or a file of one has another digest already.
        OSError: a file cannot be read.
    """
    digests = records.read_digests(path)
    directories = [pathlib.Path(run).absolute() for run in runs]
    for run, directory in zip(runs, directories, strict=True):  # all, before one is packed
        if not directory.is_relative_to(path.parent) or not (directory / "manifest.json").exists():
            raise ValueError(f"{run} is no run below {path.parent}")
        check = records.read_result if records.has_result(directory) else records.check_digests
        check(directory)
    for directory in directories:
        if f"{directory.relative_to(path.parent)}/manifest.json" not in digests:
            pack(directory, keep_parameters=_names(path.parent.parent, directory))
        for name in records.recorded_files(directory):
            file = directory / name
            digests[str(file.relative_to(path.parent))] = records.digest_of(file)
    comments = [
        line.removeprefix("# ")
        for line in path.read_text(encoding="utf-8").splitlines()
        if line.startswith("#")
    ]
    return digests, comments


def pack(directory: pathlib.Path, *, keep_parameters: bool) -> None:
    """Makes a run of MinAtar small, and leaves other runs as they are.

    Rounds wall times to seconds and leaves out speeds; the digests of scores do not cover these.

    Raises:
        Damaged: the manifest is damaged.
        OSError: a file cannot be read or written.
    """
    if manifest.read(directory / "manifest.json")["run"].get("backend") != "minatar":
        return
    metrics = directory / "metrics.jsonl"
    if metrics.exists():
        lines = [
            {name: value for name, value in line.items() if name != "steps_per_s"}
            | {"wall_s": round(line["wall_s"])}
            for line in records.read_metrics(metrics)
        ]
        content = "".join(json.dumps(line) + "\n" for line in lines).encode()
        with files.replacing(records.packed(metrics)) as partial:
            partial.write_bytes(lzma.compress(content, filters=_OF_TEXT))
        metrics.unlink()
    for name in ("curve.png", *([] if keep_parameters else [PARAMETERS])):
        (directory / name).unlink(missing_ok=True)


def _names(root: pathlib.Path, directory: pathlib.Path) -> bool:
    """Whether the list of runs whose parameters stay names a run below `root`."""
    listed = root / "campaigns" / "parameters"
    own = directory.relative_to(root).as_posix()
    return listed.exists() and own in listed.read_text(encoding="utf-8").splitlines()


if __name__ == "__main__":
    command_line.run(write)
