"""The size of pictures, and whether they look like their mirror images, of folders made for it."""

import numpy as np
import pytest
from PIL import Image

import picture_folders
from ladder.classifiers import looks
from ladder.data import listing


@pytest.fixture(autouse=True)
def empty_cache(tmp_path, monkeypatch):
    picture_folders.forget(monkeypatch, tmp_path)


def write(folder, count, picture):
    for number in range(count):
        place = folder / "ab"[number % 2]
        place.mkdir(parents=True, exist_ok=True)
        Image.fromarray(picture(np.random.default_rng(number))).save(place / f"{number}.png")
    return looks.find(listing.source(str(folder)))


def noise(random):
    return random.integers(0, 256, (40, 60, 3), dtype=np.uint8)


def lit_from_the_left(random):
    return (noise(random) // 4 + np.linspace(180, 0, 60)[None, :, None]).astype(np.uint8)


def test_noise_looks_like_its_mirror_image_and_what_is_lit_from_one_side_does_not(tmp_path):
    alike = write(tmp_path / "noise", 60, noise)
    assert (alike.side, alike.count) == (40, 30) and alike.right <= 22
    assert write(tmp_path / "lit", 60, lit_from_the_left).right == 30


def test_the_rows_of_an_archive_are_looked_at_too(tmp_path):
    images = np.stack([lit_from_the_left(np.random.default_rng(seed)) for seed in range(60)])
    path = picture_folders.npz(tmp_path / "a.npz", images=images, labels=np.arange(60) % 2)
    seen = looks.find(listing.source(str(path)))
    assert (seen.side, seen.right, seen.count) == (40, 30, 30)


def test_of_too_few_pictures_only_the_size_is_known(tmp_path):
    assert write(tmp_path / "few", 39, noise) == looks.Looks(40, 0, 0)


def test_a_second_command_reads_no_picture(tmp_path, monkeypatch):
    first = write(tmp_path / "pets", 40, noise)
    monkeypatch.setattr(looks, "_read", None)
    listing.source.cache_clear()
    assert looks.find(listing.source(str(tmp_path / "pets"))) == first
