r"""The paper's similarity figure, from what `experiments.representation` recorded.

    python -m benchmarks.figure_similarity --results=results --output=runs/report

Draws each directory that holds `similarity.jsonl`: cosine similarity to the anchor and scores over
training, for all seeds, as `figure_similarity_<game>.png`; areas under the ROC curve on unseen
episodes, where `unseen.jsonl` has them, as `figure_similarity_<game>_unseen.png`. Prints the first
and the last similarities and writes them as `figure_similarity_<game>.{csv,md,tex,html}`.
"""

import shutil
import sys

from absl import app, flags

from benchmarks import table_command
from experiments import command_line
from rcrl_jax.report import similarities, terminal


def main(argv: list[str]) -> None:
    """Draws every recorded directory below --results."""
    del argv
    given = flags.FLAGS
    try:
        recordings, problems = similarities.read(given.results)
        for line in problems:
            print(line, file=sys.stderr)
        if not recordings:
            raise ValueError(f"no similarity.jsonl below {', '.join(given.results)}")
        written = []
        for stem, recording in similarities.stems("figure_similarity", recordings).items():
            table = similarities.to_table(recording)
            print(terminal.to_text(table, shutil.get_terminal_size().columns) + "\n")
            written += similarities.write(recording, given.output, stem)
    except (ValueError, OSError) as error:
        command_line.refuse(str(error))
    print(f"written: {table_command.stem_line(written)}")


if __name__ == "__main__":
    table_command.define_flags(judges=False)
    app.run(main, flags_parser=command_line.parse)
