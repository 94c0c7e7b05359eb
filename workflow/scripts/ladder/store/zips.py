"""Archives in the zip format, the same bytes for the same files. Standard library only."""

import pathlib
import shutil
import zipfile
from collections.abc import Mapping

DATE = (1980, 1, 1, 0, 0, 0)  # of every file


def pack(path: str | pathlib.Path, files: Mapping[str, pathlib.Path]) -> None:
    """Write an archive of files, name in it -> path, as they are: arrays of float32 do not become
    smaller.
    """
    with zipfile.ZipFile(path, "w") as archive:
        for name, file in files.items():
            entry = zipfile.ZipInfo(name, DATE)
            entry.external_attr = 0o644 << 16
            with open(file, "rb") as source, archive.open(entry, "w", force_zip64=True) as target:
                shutil.copyfileobj(source, target)
