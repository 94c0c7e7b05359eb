"""The page of a training that runs has its losses and the time left, loads itself again until the
training has ended, and says how it has ended.
"""

import re
import types

import pytest

import browser
import needs
from ladder.training import live


def run_of(losses, epochs=4, validation=None):
    """As much of a Training as the page reads, of epochs that took 60 s each."""
    return types.SimpleNamespace(
        losses=losses,
        epoch=len(losses),
        epochs=epochs,
        seconds=60.0 * len(losses),
        validation=validation and types.SimpleNamespace(losses=validation),
    )


def grow(page, run, *losses):
    for loss in losses:
        run.losses.append(loss)
        run.epoch, run.seconds = run.epoch + 1, run.seconds + 60
        page(run)


@pytest.fixture
def path(tmp_path):
    return tmp_path / "logs/train/t0.html"


def test_it_grows_by_the_epoch_and_loads_itself_again_until_the_training_has_ended(path):
    run = run_of([])
    with live.Page(str(path), "lenet_5, t0") as page:
        page(run)
        begun = path.read_text()
        grow(page, run, 0.5, 0.25)
        running = path.read_text()
        grow(page, run, 0.1, 0.125)
    ended = path.read_text()
    assert "epoch 0 of 4" in begun and "<svg" not in begun
    assert "epoch 2 of 4, about 2 min 0 s left" in running
    assert 'd="M0.0000 0.0000L0.0000 0.0000 0.3333 1.0000"' in running
    assert "training loss 0.25" in running
    assert "ended, after epoch 4 of 4" in ended and "training loss 0.125" in ended
    again = '<meta http-equiv="refresh" content="5">'
    assert [again in text for text in (begun, running, ended)] == [True, True, False]
    assert all(re.search(r">\d\d:\d\d:\d\d: ", text) for text in (begun, running, ended))


def test_it_says_why_a_training_ended_early_and_lets_the_error_pass(path):
    with pytest.raises(ValueError), live.Page(str(path), "<b>, t0") as page:
        page(run_of([0.5]))
        raise ValueError("a loss of 3 < 4")
    text = path.read_text()
    assert "ended early: a loss of 3 &lt; 4, after epoch 1 of 4" in text
    assert "refresh" not in text and "&lt;b&gt;" in text and "<b>" not in text
    path.unlink()
    with pytest.raises(KeyboardInterrupt), live.Page(str(path), "t0") as page:
        page(run_of([0.5]))
        raise KeyboardInterrupt
    assert "ended early: KeyboardInterrupt" in path.read_text()


def test_the_loss_on_the_validation_images_is_a_second_curve(path):
    live.Page(str(path), "t0")(run_of([2.0, 1.0], validation=[3.0, 1.5]))
    text = path.read_text()
    assert "training loss 1; dotted: validation loss 1.5" in text
    assert 'class="validation" d="M0.0000 0.0000L' in text and "axis: 1 to 3</p>" in text


def test_a_place_that_takes_no_page_ends_no_training(tmp_path):
    (tmp_path / "logs").write_text("no folder")
    with live.Page(str(tmp_path / "logs/t0.html"), "t0") as page:
        page(run_of([0.5]))
    with live.Page("", "t0") as page:
        page(run_of([0.5]))
    assert [one.name for one in tmp_path.iterdir()] == ["logs"]


@needs.BROWSER
@pytest.mark.parametrize("width, scheme", [(390, "light"), (1280, "dark")])
def test_axe_finds_nothing(chromium, path, width, scheme):
    with live.Page(str(path), "lenet_5, t0") as page:
        page(run_of([0.5, 0.3], validation=[0.6, 0.5]))
    browser.check_axe(chromium, path, width, scheme)
