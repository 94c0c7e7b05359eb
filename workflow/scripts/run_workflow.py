"""What `make report` runs: Snakemake with the words of the command line, and a line for each stage;
with -v its own words.
"""

import sys

from ladder.workflow import terminal

if __name__ == "__main__":
    sys.exit(terminal.run(sys.argv[1:]))
