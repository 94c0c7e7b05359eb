"""What a classifier decides on is the mean of its decision values for an image and, if any, for the image's shifted copies."""


def mean(values):
    """The mean of a list of arrays of decision values, added in the list's order; of one array the same values."""
    first, *others = values
    return sum(others, first) / len(values)
