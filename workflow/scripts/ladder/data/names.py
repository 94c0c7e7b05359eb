"""The names of the pictures of one's own that the stage `data` has read, in the order of its rows:
names.json.

There a byte of a name that is no UTF-8 is a lone surrogate, as os.fsdecode gives it, so that
os.fsencode gives the file's name.
"""

FILE = "names.json"


def read(data, part):
    """The names of the rows of a part, train or test, as text with \\xNN for bytes that are no
    UTF-8; None without names.

    data: the artifact of the stage.
    """
    if FILE not in data.manifest["files"]:
        return None
    return [
        name.encode("utf-8", "surrogateescape").decode("utf-8", "backslashreplace")
        for name in data.json(FILE)[part]
    ]
