r"""The paper's similarity figure, from what `experiments.representation` recorded.

    python -m benchmarks.figure_similarity --results=results --output=runs/report

Draws each directory that holds `similarity.jsonl`: cosine similarity to the anchor and scores over
training, for all seeds, as `figure_similarity_<game>.png`; areas under the ROC curve on unseen
episodes, where `unseen.jsonl` has them, as `figure_similarity_<game>_unseen.png`. Prints the first
and the last similarities and writes them as `figure_similarity_<game>.{csv,md,tex,html}`.
"""

import os
import shutil
import sys
from collections.abc import Sequence

from benchmarks.tables import command, similarities
from benchmarks.tables.table import to_text


def run(results: Sequence[str | os.PathLike], output: str | os.PathLike) -> None:
    """Draws every recorded directory; those that are left out are named on stderr.

    Args:
        results: directories to search, at any depth.
        output: directory to write to.

    Raises:
        ValueError: a directory does not exist, or none holds a recording.
        OSError: a file cannot be written.
    """
    recordings, problems = similarities.read(results)
    for line in problems:
        print(line, file=sys.stderr)
    if not recordings:
        places = ", ".join(map(str, results))
        raise ValueError(
            f"no similarity.jsonl to draw below {places}; experiments.representation records it"
        )
    written = []
    for stem, recording in similarities.stems("figure_similarity", recordings).items():
        table = similarities.to_table(recording)
        print(to_text(table, shutil.get_terminal_size().columns) + "\n")
        written += similarities.write(recording, output, stem)
    print(command.stem_line(written))


if __name__ == "__main__":
    command.define_flags(judges=False)
    command.start(lambda given: run(given.results, given.output))
