import gzip
import hashlib
import io
import tarfile

import numpy as np
import pytest

from ladder import datasets
from ladder.errors import UserError

FOLDER = "cifar-10-batches-bin"
NAMES = "\n".join(datasets.CIFAR10_CLASSES) + "\n\n"


def records(count, seed=0):
    """`count` random records of CIFAR-10's binary format, their labels in turn."""
    rows = np.random.default_rng(seed).integers(0, 256, (count, datasets.RECORD), dtype=np.uint8)
    rows[:, 0] = np.arange(count) % 10
    return rows


def contents():
    """{member: bytes} of a small, good archive: 20 records in each training batch, 10 in the test batch."""
    files = {f"{FOLDER}/data_batch_{i}.bin": records(20, seed=i).tobytes() for i in range(1, 6)}
    files[f"{FOLDER}/test_batch.bin"] = records(10, seed=6).tobytes()
    files[f"{FOLDER}/batches.meta.txt"] = NAMES.encode()
    return files


def member(name, data=b"", **attributes):
    info = tarfile.TarInfo(name)
    info.size = len(data)
    for key, value in attributes.items():
        setattr(info, key, value)
    return info, io.BytesIO(data)


def write(path, files, extra=()):
    with tarfile.open(path, "w:gz", compresslevel=1) as archive:
        for name, data in files.items():
            archive.addfile(*member(name, data))
        for info, data in extra:
            archive.addfile(info, data)
    return path


def fault(path):
    """The one line that reading the archive fails with."""
    with pytest.raises(UserError) as error:
        datasets.read_cifar10(path)
    message = str(error.value)
    assert message.isprintable() and message.startswith(f"{path} is not a CIFAR-10 binary archive: ")
    assert "cifar10_urls and cifar10_sha256" in message
    return message


@pytest.fixture
def archive(tmp_path):
    return tmp_path / "cifar.tar.gz"


def test_digits_are_all_there_and_split_by_class():
    data = datasets.digits()
    assert data.train_images.shape == (1433, 32, 32, 3) and data.test_images.shape == (364, 32, 32, 3)
    assert data.train_images.dtype == data.test_images.dtype == data.train_labels.dtype == np.uint8
    share = np.bincount(data.test_labels) / (np.bincount(data.train_labels) + np.bincount(data.test_labels))
    assert len(share) == 10 and np.all(np.abs(share - 0.2) < 0.01)


def test_digits_are_the_same_bytes_everywhere():
    data = datasets.digits()
    digest = hashlib.sha256()
    for array in (data.train_images, data.train_labels, data.test_images, data.test_labels):
        digest.update(array.tobytes())
    assert digest.hexdigest() == "b2851cab711638cbe9e48925a91dd61772339fc24dccbb41a4824552c047a074"


def test_digits_are_enlarged_bilinearly():
    from PIL import Image
    from sklearn.datasets import load_digits

    raw = load_digits().images[:20]
    enlarged = datasets._enlarge(raw.astype(np.int64))
    for small, large in zip(raw, enlarged, strict=True):
        reference = np.asarray(Image.fromarray(small.astype(np.float32)).resize((32, 32), Image.Resampling.BILINEAR))
        np.testing.assert_allclose(large, reference * 255 / 16, atol=0.5001)


def test_digits_of_the_two_parts_are_those_of_scikit_learn():
    from sklearn.datasets import load_digits

    raw, data = load_digits(), datasets.digits()
    assert sorted(np.concatenate([data.train_labels, data.test_labels])) == sorted(raw.target)
    everything = np.concatenate([data.train_images, data.test_images])
    assert len(np.unique(everything.reshape(1797, -1), axis=0)) == len(np.unique(raw.data, axis=0))


def test_an_archive_becomes_nhwc_images_and_labels_in_their_order(archive):
    files = contents()
    data = datasets.read_cifar10(write(archive, files))
    assert data.train_images.shape == (100, 32, 32, 3) and data.test_images.shape == (10, 32, 32, 3)
    assert data.classes == datasets.CIFAR10_CLASSES
    for row, batch, index in ((0, 1, 0), (19, 1, 19), (20, 2, 0), (99, 5, 19)):
        raw = files[f"{FOLDER}/data_batch_{batch}.bin"][index * 3073:(index + 1) * 3073]
        assert data.train_labels[row] == raw[0]
        for y, x, channel in ((0, 0, 0), (0, 1, 0), (1, 0, 0), (31, 31, 2), (5, 7, 1)):
            assert data.train_images[row, y, x, channel] == raw[1 + channel * 1024 + y * 32 + x]
    test = np.frombuffer(files[f"{FOLDER}/test_batch.bin"], np.uint8).reshape(10, 3073)
    np.testing.assert_array_equal(data.test_images.transpose(0, 3, 1, 2).reshape(10, -1), test[:, 1:])


def test_other_members_and_folders_are_passed_over(archive):
    files = {f"./{name}": data for name, data in contents().items()} | {f"{FOLDER}/readme.html": b"<p>hello"}
    data = datasets.read_cifar10(write(archive, files, [member(FOLDER, type=tarfile.DIRTYPE)]))
    assert len(data.train_labels) == 100


@pytest.mark.parametrize("name", ["../../evil.txt", "/etc/evil", f"{FOLDER}/../../evil", "a/..", "../\x1b[2Jé\nx"])
def test_names_that_point_outside_are_refused_and_nothing_is_written(archive, tmp_path, name):
    write(archive, contents(), [member(name, b"evil")])
    assert "points outside the archive" in fault(archive)
    assert list(tmp_path.iterdir()) == [archive]


@pytest.mark.parametrize("kind", [tarfile.SYMTYPE, tarfile.LNKTYPE, tarfile.CHRTYPE, tarfile.BLKTYPE, tarfile.FIFOTYPE])
def test_links_devices_and_pipes_are_refused(archive, kind):
    files = contents()
    del files[f"{FOLDER}/test_batch.bin"]
    write(archive, files, [member(f"{FOLDER}/test_batch.bin", type=kind, linkname="/dev/zero")])
    assert "is not a plain file or folder" in fault(archive)


def test_a_folder_in_place_of_a_batch_is_refused(archive):
    files = contents()
    del files[f"{FOLDER}/test_batch.bin"]
    write(archive, files, [member(f"{FOLDER}/test_batch.bin", type=tarfile.DIRTYPE)])
    assert "test_batch.bin is not a file" in fault(archive)


def test_a_sparse_member_is_refused(archive):
    sparse = {"GNU.sparse.major": "0", "GNU.sparse.minor": "1", "GNU.sparse.map": "0,3073",
              "GNU.sparse.size": str(3073 * 10)}
    files = contents()
    del files[f"{FOLDER}/test_batch.bin"]
    write(archive, files, [member(f"{FOLDER}/test_batch.bin", bytes(3073), pax_headers=sparse)])
    assert "is not a plain file or folder" in fault(archive)


@pytest.mark.parametrize("count", [0, 1, 3072, 3074, 20 * 3073 - 1, 10_001 * 3073])
def test_a_batch_that_is_not_whole_records_is_refused(archive, count):
    write(archive, contents() | {f"{FOLDER}/data_batch_3.bin": bytes(count)})
    expected = f"data_batch_3.bin is {count:,} bytes long, which is not 1 to 10,000 records of 3,073 bytes"
    assert expected in fault(archive)


def test_a_label_out_of_range_is_refused(archive):
    rows = records(20)
    rows[7, 0] = 10
    write(archive, contents() | {f"{FOLDER}/data_batch_2.bin": rows.tobytes()})
    assert f"record 7 of its {FOLDER}/data_batch_2.bin has label 10, which is not 0 to 9" in fault(archive)


@pytest.mark.parametrize("name", sorted(contents()))
def test_a_missing_member_is_named(archive, name):
    files = contents()
    del files[name]
    assert f"it has no {name}" in fault(write(archive, files))


def test_a_member_that_comes_twice_is_refused(archive):
    name = f"{FOLDER}/test_batch.bin"
    assert f"it holds {name} twice" in fault(write(archive, contents(), [member(name, records(10).tobytes())]))


def test_other_class_names_are_refused(archive):
    names = "\n".join(reversed(datasets.CIFAR10_CLASSES)).encode()
    assert "does not list the ten classes" in fault(write(archive, contents() | {f"{FOLDER}/batches.meta.txt": names}))


def test_an_archive_cut_anywhere_is_refused(archive):
    whole = write(archive, contents()).read_bytes()
    for length in (0, 1, 9, 100, len(whole) // 2, len(whole) - 9, len(whole) - 4, len(whole) - 1):
        archive.write_bytes(whole[:length])
        fault(archive)


def test_an_archive_with_any_damage_is_refused_or_read_unchanged(archive):
    """A flipped bit is noticed by gzip's checksum, unless it is in a field of gzip's header that nothing depends on."""
    whole = write(archive, contents()).read_bytes()
    expected = datasets.read_cifar10(archive).train_images
    refused = 0
    for position in np.random.default_rng(1).integers(0, len(whole), 40):
        archive.write_bytes(whole[:position] + bytes([whole[position] ^ 0x10]) + whole[position + 1:])
        try:
            np.testing.assert_array_equal(datasets.read_cifar10(archive).train_images, expected)
        except UserError:
            refused += 1
    assert refused >= 35


def test_damaged_tar_headers_are_refused_or_harmless(archive):
    """Headers with random bytes in them, in a sound gzip file: one line or the data, never another error."""
    plain = gzip.decompress(write(archive, contents()).read_bytes())
    starts = [at for at in range(0, len(plain), 512) if plain[at + 257:at + 262] == b"ustar"]
    generator = np.random.default_rng(2)
    refused = 0
    for _ in range(60):
        damaged = bytearray(plain)
        start = int(generator.choice(starts))
        for offset in generator.integers(0, 345, 3):
            damaged[start + offset] = generator.integers(0, 256)
        damaged[start + 148:start + 156] = b"%06o\0 " % (sum(damaged[start:start + 148]) + 256
                                                         + sum(damaged[start + 156:start + 512]))
        archive.write_bytes(gzip.compress(bytes(damaged), 1))
        try:
            datasets.read_cifar10(archive)
        except UserError:
            refused += 1
    assert refused >= 20


def test_a_file_of_another_kind_is_refused(archive):
    for data in (b"<html>not found</html>", gzip.compress(b"not a tar"), gzip.compress(b""), bytes(5000)):
        archive.write_bytes(data)
        fault(archive)


def test_a_small_file_that_unpacks_to_gigabytes_is_stopped(archive, monkeypatch):
    monkeypatch.setattr(datasets, "MOST_BYTES", 1_000_000)
    write(archive, {"padding": bytes(3_000_000)} | contents())
    assert "unpacks to more than 1.0 MB" in fault(archive)


def test_padding_behind_the_last_member_counts_too(archive, monkeypatch):
    monkeypatch.setattr(datasets, "MOST_BYTES", 1_000_000)
    with gzip.open(write(archive, contents()), "ab") as file:
        file.write(bytes(3_000_000))
    assert "unpacks to more than 1.0 MB" in fault(archive)


def test_a_header_that_claims_a_huge_size_is_stopped(archive):
    info, _ = member("x" * 200, b"")
    header = bytearray(info.tobuf(tarfile.GNU_FORMAT))
    header[124:136] = b"77777777777\0"   # the long name is said to have 8 GB
    header[148:156] = b"        "
    header[148:156] = b"%06o\0 " % sum(header[:512])
    archive.write_bytes(gzip.compress(bytes(header)))
    fault(archive)


def test_too_many_members_are_refused(archive):
    write(archive, {f"file{i}": b"" for i in range(datasets.MOST_MEMBERS + 1)} | contents())
    assert "more than 100 members" in fault(archive)


def test_a_configured_archive_is_fetched_kept_and_read(archive, tmp_path):
    sha256 = hashlib.sha256(write(archive, contents()).read_bytes()).hexdigest()
    data = datasets.cifar10([archive.as_uri()], tmp_path / "downloads", sha256)
    kept = tmp_path / "downloads" / sha256[:12] / "cifar-10-binary.tar.gz"
    assert kept.read_bytes() == archive.read_bytes() and len(data.train_labels) == 100


def test_an_archive_of_another_size_than_the_official_one_is_refused_at_once(archive, tmp_path):
    write(archive, contents())
    with pytest.raises(UserError, match="bytes, not 170,052,171"):
        datasets.cifar10([archive.as_uri()], tmp_path / "downloads")


def test_limits_are_balanced_nested_and_in_order():
    labels = np.random.default_rng(3).integers(0, 10, 500).astype(np.uint8)
    kept = {limit: datasets._limited_rows(labels, limit, "train_limit", 10) for limit in (10, 57, 200)}
    for limit, rows in kept.items():
        counts = np.bincount(labels[rows], minlength=10)
        assert len(rows) == limit and counts.max() - counts.min() <= 1 and np.all(np.diff(rows) > 0)
    assert set(kept[10]) < set(kept[57]) < set(kept[200])


def test_a_limit_near_all_rows_is_as_balanced_as_the_data_allows():
    data = datasets.digits()
    part = datasets.limited(data, 1400, "all")
    counts, available = np.bincount(part.train_labels), np.bincount(data.train_labels)
    assert np.all((counts >= counts.max() - 1) | (counts == available))
    assert len(part.train_images) == 1400 and len(part.test_images) == 364


def test_limits_keep_images_with_their_labels():
    data = datasets.digits()
    part = datasets.limited(data, 20, 10)
    for image, label in zip(part.train_images, part.train_labels, strict=True):
        matches = np.flatnonzero((data.train_images == image).all(axis=(1, 2, 3)))
        assert label in data.train_labels[matches]


@pytest.mark.parametrize("limit", [9, 0, -5, 1434])
def test_a_limit_that_the_data_cannot_give_is_named_with_what_it_may_be(limit):
    with pytest.raises(UserError, match=rf"train_limit {limit} .* 10 .* to 1433 .*, or all"):
        datasets.limited(datasets.digits(), limit, "all")


def test_a_test_limit_is_named_as_such():
    with pytest.raises(UserError, match="test_limit 365"):
        datasets.limited(datasets.digits(), "all", 365)
