"""Write the study of a search by TPE beside its best.yaml, for Optuna's own tools; by the rule
`publish_search`.

    write_study.py --config-file logs/search.json
"""

import json
import pathlib
import sys

sys.path.append(str(pathlib.Path(__file__).resolve().parents[1]))

from ladder.stage import command
from ladder.workflow import config as configuration
from ladder.workflow import search

STUDY = pathlib.Path("results/search.db")


def main():
    parser = command.parser(__doc__, of_configuration=True)
    raw = json.loads(parser.parse_args().config_file.read_text("utf-8"))
    search.plan(configuration.load(raw)).study.write(STUDY)


if __name__ == "__main__":
    command.run(main)
