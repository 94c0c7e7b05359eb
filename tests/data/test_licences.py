"""Every data set has its terms."""

from ladder.data import facts, licences


def test_every_data_set_has_its_terms():
    assert licences.LICENCES.keys() == {*facts.FACTS, facts.FOLDER}
