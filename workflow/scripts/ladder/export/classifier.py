"""The classifiers that answer for a run, as nodes of an ONNX graph: decisions, classes and margins
from feature vectors.

Kernel values are weighted and added up in the graph's type `real`.

Decisions of an SVM are those of the pairs of classes (0, 1), (0, 2), ...; a pair votes for its
first class above 0. Those of kernel ridge and of a network are scores, one for each class. The
margin is by how much the class has won: of an SVM the least of its decisions against the other
classes, else the lead of its score.
"""

import itertools

import numpy as np

from ladder.export.graph import FLOAT

FAR = np.float32(1e30)  # the margin of a class against itself, which is not the least


def svm_decisions(graph, halves, model):
    """real (M, pairs) of a classifiers.svm.SvmModel for features whose odd half it does not
    read.
    """
    count = len(model.classes)
    values = _kernel_values(graph, halves[:1], model.support_vectors, model.center, model.kernel)
    values = graph.add("Split", values, model.n_support, outputs=count, axis=1)
    ends = np.cumsum(model.n_support)
    weights = model.dual_coef.T.astype(graph.real)
    # of a class's vectors against each other class
    sums = [
        graph.add("MatMul", block, weights[end - size : end])
        for block, end, size in zip(values, ends, model.n_support, strict=True)
    ]
    table, pairs = (
        graph.add("Concat", *sums, axis=1),
        np.array(list(itertools.combinations(range(count), 2))),
    )
    first, second = (
        pairs[:, 0] * (count - 1) + pairs[:, 1] - 1,
        pairs[:, 1] * (count - 1) + pairs[:, 0],
    )
    both = [graph.add("Gather", table, columns, axis=1) for columns in (first, second)]
    return graph.add("Add", graph.add("Add", *both), model.intercept.astype(graph.real))


def ridge_scores(graph, halves, model):
    """real (M, classes) of a classifiers.ridge.RidgeModel."""
    halves = halves if model.kernel.odd else halves[:1]
    values = _kernel_values(graph, halves, model.rows, model.center, model.kernel)
    sums = graph.add("MatMul", values, model.coefficients.astype(graph.real))
    return graph.add("Add", sums, model.intercept.astype(graph.real))


def _kernel_values(graph, halves, known, center, kernel):
    """real (M, n): the kernel of features, given by their halves, and the known rows (n, D), which
    are minus `center`.
    """
    ends = np.cumsum([0, known.shape[1] - kernel.odd, kernel.odd])[: 1 + len(halves)]
    slices = [slice(start, end) for start, end in itertools.pairwise(ends)]
    centred = [
        graph.add("Sub", half, center[part]) for half, part in zip(halves, slices, strict=True)
    ]
    products = [
        graph.add("MatMul", half, known[:, part].T)
        for half, part in zip(centred, slices, strict=True)
    ]
    if kernel.name == "linear":
        values = products[0]
    elif kernel.name == "poly":
        shifted = graph.add(
            "Add", graph.add("Mul", products[0], np.float32(kernel.gamma)), np.float32(kernel.coef0)
        )
        values = graph.add("Pow", shifted, np.float32(kernel.degree))
    else:
        values = _rbf(graph, centred, products, known, kernel.gamma)
    return graph.real_from(values)


def _rbf(graph, centred, products, known, gamma):
    """exp(-gamma |x - y|^2); with an odd half the mean of the values with either sign of it."""
    squares = [
        graph.add("ReduceSumSquare", graph.real_from(half), np.int64([1])) for half in centred
    ]
    lengths = graph.add("Add", *squares) if len(squares) > 1 else squares[0]
    lengths = graph.add("Cast", lengths, to=FLOAT) if graph.real != np.float32 else lengths
    norms = graph.add(
        "Add", lengths, np.square(known.astype(np.float64)).sum(axis=1).astype(np.float32)
    )

    def values(product):
        distances = graph.add("Sub", graph.add("Mul", product, np.float32(2)), norms)
        return graph.add(
            "Exp", graph.add("Mul", graph.add("Min", distances, np.float32(0)), np.float32(gamma))
        )

    if len(products) == 1:
        return values(products[0])
    either = [values(graph.add(operator, *products)) for operator in ("Add", "Sub")]
    return graph.add("Mul", graph.add("Add", *either), np.float32(0.5))


# From decisions to a class.


def mean_over_copies(graph, decisions, copies, columns):
    """(N, columns): the mean of the decisions (copies * N, columns) for an image and its shifted
    copies.
    """
    if copies == 1:
        return decisions
    return graph.add(
        "ReduceMean",
        graph.add("Reshape", decisions, np.int64([copies, -1, columns])),
        np.int64([0]),
        keepdims=0,
    )


def by_votes(graph, decisions, count):
    """(places of the classes int64 (N, 1), margins real (N, 1)) of an SVM of so many classes."""
    pairs = list(itertools.combinations(range(count), 2))
    first, second = np.eye(count, dtype=np.float32)[np.array(pairs).T]
    won = graph.add("Cast", graph.add("Greater", decisions, graph.real(0)), to=FLOAT)
    votes = graph.add("Add", graph.add("MatMul", won, first - second), second.sum(axis=0))
    against, signs = np.zeros((count, count), np.int64), np.zeros((count, count), graph.real)
    for number, (i, j) in enumerate(pairs):
        against[i, j] = against[j, i] = number
        signs[i, j], signs[j, i] = 1, -1
    each = graph.add("Mul", graph.add("Gather", decisions, against, axis=1), signs)
    each = graph.add("Add", each, FAR * np.eye(count, dtype=graph.real))  # none against itself
    place = graph.add("ArgMax", votes, axis=1)
    return place, graph.add(
        "GatherElements", graph.add("ReduceMin", each, np.int64([2]), keepdims=0), place, axis=1
    )


def by_scores(graph, scores):
    """(places of the classes int64 (N, 1), margins (N, 1)) of scores (N, classes), of which there
    are at least two.
    """
    largest, _ = graph.add("TopK", scores, np.int64([2]), outputs=2)
    best, next_best = graph.add("Split", largest, outputs=2, num_outputs=2, axis=1)
    return graph.add("ArgMax", scores, axis=1), graph.add("Sub", best, next_best)
