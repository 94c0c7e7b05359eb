"""What `make report` says last."""

import json

from tools import next_step


def test_the_minutes_are_those_of_the_record_with_its_controls(monkeypatch, tmp_path, capsys):
    seconds = {"train": 300.0, "svm": 61.0, "svm_random": 119.0}
    (tmp_path / "record.json").write_text(json.dumps({"whole": {"summary": {"seconds": seconds}}}))
    monkeypatch.setattr(next_step, "RECORD", tmp_path / "record.json")
    next_step.main()
    assert "to download, 8 minutes on two cores" in capsys.readouterr().out
