"""Serve a page, on this machine only, with the curves of the latest training as they grow.

It reads the training's log and checkpoints and leaves it alone. Ctrl-C ends it; the exit status is
2, with a one-line message, if the port is in use.
"""

import argparse
import asyncio
import contextlib
import sys

from ladder.demo import live_server, local
from ladder.errors import UserError


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--port", type=local.port, default=8010, help="0: any free port (default: %(default)s)"
    )
    try:
        listening = local.listen(parser.parse_args().port, "make watch")
    except UserError as error:
        print(error, file=sys.stderr)
        return 2
    print(
        "open http://{}:{}/ on this machine; Ctrl-C ends it".format(*listening.getsockname()),
        flush=True,
    )
    with contextlib.suppress(KeyboardInterrupt):
        asyncio.run(live_server.serve(listening, "results", "logs"))
    return 0


if __name__ == "__main__":
    sys.exit(main())
