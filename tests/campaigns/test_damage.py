"""A slice of the campaign on the first two stages; `python tests/campaigns/damage.py` damages whole
chains.
"""

import damage

COMMAND = ("normalized", "--config", *damage.TINY)


def test_damaged_files_are_named_and_made_again(tmp_path):
    done = damage.campaign(tmp_path, COMMAND, limit=3, seed=2)
    assert not any(line["fault"] for line in done), damage.summary(done)
    assert sum(len(line["damages"]) for line in done) >= 3
