"""One-vs-one SVMs against scikit-learn's SVC: predictions, files, errors, and the stage."""

import itertools
import json
import time
import types

import numpy as np
import pytest
import safetensors.numpy
import sklearn.datasets
import sklearn.svm

import fake_cuml
import fit_svm
import manifest_files
import processes
from ladder import progress, sources
from ladder.arithmetic import arrays
from ladder.classifiers import backends, kernel_functions, svm
from ladder.classifiers import decisions as deciding
from ladder.errors import UserError
from ladder.store import artifacts, programs, scores

IMAGES, DIGITS = sklearn.datasets.load_digits(return_X_y=True)
TRAIN, TRAIN_LABELS = IMAGES[:600].astype(np.float32), DIGITS[:600].astype(np.uint8)
TEST, TEST_LABELS = IMAGES[600:1100].astype(np.float32), DIGITS[600:1100].astype(np.uint8)
BLOCKS = "libsvm on BLAS Gram blocks"
CPU_BACKENDS = [name for name in ("sklearn", "sklearnex") if backends.unavailable(name) is None]


@pytest.fixture(autouse=True)
def onedal_for_digits(request, monkeypatch):
    """oneDAL where a test names it, but in the tests of the choice."""
    if "onedal" not in request.node.name:
        monkeypatch.setattr(svm, "ONEDAL_CLASSES", 11)


def reference(kernel="rbf", C=10.0, gamma="scale", rows=TRAIN, labels=TRAIN_LABELS):
    return sklearn.svm.SVC(kernel=kernel, C=C, gamma=gamma).fit(rows.astype(np.float64), labels)


def decisions(model, rows):
    return np.concatenate(svm.decision_blocks(model, rows))


# Agreement with scikit-learn


@pytest.mark.parametrize("backend", CPU_BACKENDS)
@pytest.mark.parametrize("kernel", kernel_functions.KERNELS)
@pytest.mark.parametrize("gamma", ["scale", "auto", 0.002])
def test_every_prediction_is_that_of_scikit_learns_svc(backend, kernel, gamma):
    model, _ = svm.fit(TRAIN, TRAIN_LABELS, backend, kernel, gamma=gamma, threads=2)
    expected = reference(kernel, gamma=gamma)
    np.testing.assert_array_equal(svm.predict(model, TEST), expected.predict(TEST))


@pytest.mark.parametrize(
    "choices, best",
    [(((10.0, 1.0), (1e-3, 1.0)), 0), (((10.0, 50.0), (100.0, 0.1)), 1), (((5.0, 1.0),) * 2, 0)],
)
def test_c_and_gamma_are_those_that_classify_the_rows_left_out_best(monkeypatch, choices, best):
    monkeypatch.setattr(svm, "CHOICES", choices)
    rows, labels = TRAIN[:120], TRAIN_LABELS[:120]
    out = [row for row in range(120) if np.sum(labels[:row] == labels[row]) % 2]
    rest, scale = np.setdiff1d(np.arange(120), out), kernel_functions.resolve_gamma("scale", rows)
    settings = [(C, share * scale) for C, share in choices]
    right = [
        np.sum(
            reference("rbf", *setting, rows[rest], labels[rest]).predict(rows[out]) == labels[out]
        )
        for setting in settings
    ]
    assert right[best] == max(right)
    assert svm.choose(rows, labels, "sklearn", "rbf", "scale") == settings[best]
    alone = TRAIN[:2], np.uint8([0, 1])  # nothing can be left out
    assert svm.choose(*alone, "sklearn", "rbf", 1.0) == (choices[0][0], choices[0][1])


def test_the_arrays_are_those_of_scikit_learns_svc():
    model, _ = svm.fit(TRAIN, TRAIN_LABELS, C=1.0)
    expected = reference(C=1.0)
    np.testing.assert_array_equal(model.n_support, expected.n_support_)
    np.testing.assert_array_equal(model.support, expected.support_)
    np.testing.assert_allclose(
        model.support_vectors + model.center, expected.support_vectors_, atol=1e-5
    )
    # the solver stops at a tolerance
    np.testing.assert_allclose(model.dual_coef, expected.dual_coef_, atol=0.01)
    np.testing.assert_allclose(model.intercept, expected.intercept_, atol=0.01)
    assert model.kernel.gamma == pytest.approx(expected._gamma, rel=1e-12)


def test_votes_and_margins_are_those_of_the_pairs_one_by_one():
    model, _ = svm.fit(TRAIN, TRAIN_LABELS)
    found = decisions(model, TEST[:40])
    votes, best = deciding.votes(found, 10), svm.predict(model, TEST[:40])
    margins = svm.margins(model, found, best)
    np.testing.assert_array_equal(model.classes[np.argmax(votes, axis=1)], best)
    for row in range(40):
        wins, expected = np.zeros(10), np.zeros(10)
        for pair, (i, j) in enumerate(itertools.combinations(range(10), 2)):
            winner, loser = (i, j) if found[row, pair] > 0 else (j, i)
            wins[winner] += 1
            if best[row] in (i, j):
                expected[loser if winner == best[row] else winner] = abs(found[row, pair]) * (
                    1 if winner == best[row] else -1
                )
        np.testing.assert_array_equal(votes[row], wins)
        np.testing.assert_allclose(margins[row], expected)


@pytest.mark.parametrize("backend", CPU_BACKENDS)
def test_a_large_offset_costs_no_accuracy(backend):
    # |x|^2 + |y|^2 - 2 x.y in float32 has no correct digit here, unless the rows are centered
    # first.
    model, _ = svm.fit(TRAIN + 10_000, TRAIN_LABELS, backend, gamma=0.002)
    np.testing.assert_array_equal(
        svm.predict(model, TEST + 10_000), reference(gamma=0.002).predict(TEST)
    )


@pytest.mark.parametrize("backend", CPU_BACKENDS)
def test_two_classes(backend):
    keep = np.isin(TRAIN_LABELS, (3, 8))
    model, _ = svm.fit(TRAIN[keep], TRAIN_LABELS[keep], backend)
    expected = reference(rows=TRAIN[keep], labels=TRAIN_LABELS[keep])
    np.testing.assert_array_equal(svm.predict(model, TEST), expected.predict(TEST))
    np.testing.assert_allclose(
        decisions(model, TEST)[:, 0], -expected.decision_function(TEST), atol=0.01
    )


@pytest.mark.parametrize("backend", CPU_BACKENDS)
def test_classes_of_any_size_and_label(backend):
    # 40 rows of class 200, 3 of 7, 1 of 0, mixed
    rows = np.concatenate(
        [
            np.flatnonzero(TRAIN_LABELS == 1)[:40],
            np.flatnonzero(TRAIN_LABELS == 2)[:3],
            np.flatnonzero(TRAIN_LABELS == 4)[:1],
        ]
    )
    labels = np.repeat([200, 7, 0], [40, 3, 1]).astype(np.uint8)
    order = np.random.default_rng(1).permutation(len(rows))
    rows, labels = TRAIN[rows[order]], labels[order]
    model, _ = svm.fit(rows, labels, backend)
    assert model.classes.tolist() == [0, 7, 200] and model.n_support.sum() == len(model.support)
    np.testing.assert_array_equal(
        svm.predict(model, TEST), reference(rows=rows, labels=labels).predict(TEST)
    )
    np.testing.assert_allclose(model.support_vectors + model.center, rows[model.support], atol=1e-5)


def test_equal_votes_go_to_the_lowest_class_as_in_libsvm():
    # labels without meaning: many rows on which the machines disagree
    random = np.random.default_rng(2)
    rows, labels = random.standard_normal((120, 5)).astype(np.float32), random.integers(0, 6, 120)
    tests = random.standard_normal((400, 5)).astype(np.float32)
    model, _ = svm.fit(rows, labels)
    votes = np.zeros((len(tests), 6), int)
    for column, (i, j) in zip(decisions(model, tests).T, deciding.pairs(6), strict=True):
        votes[np.arange(len(tests)), np.where(column > 0, i, j)] += 1
    assert ((votes == votes.max(axis=1, keepdims=True)).sum(axis=1) > 1).sum() > 20
    np.testing.assert_array_equal(
        svm.predict(model, tests), reference(rows=rows, labels=labels).predict(tests)
    )


def test_block_sizes_do_not_change_the_result(monkeypatch):
    model, _ = svm.fit(TRAIN, TRAIN_LABELS)
    whole = decisions(model, TEST)
    monkeypatch.setattr(svm, "PREDICT_VALUES", 7 * len(model.support))
    np.testing.assert_allclose(decisions(model, TEST), whole, rtol=1e-4, atol=1e-4)
    monkeypatch.setattr(svm, "CHUNK", 11)
    again, _ = svm.fit(TRAIN, TRAIN_LABELS)
    np.testing.assert_allclose(decisions(again, TEST), whole, rtol=0.01, atol=0.01)


# Kernels


@pytest.mark.parametrize(
    "name, formula",
    [
        ("rbf", lambda x, y: np.exp(-0.3 * ((x[:, None] - y) ** 2).sum(axis=2))),
        ("linear", lambda x, y: x @ y.T),
        ("poly", lambda x, y: (0.3 * x @ y.T + 0.5) ** 2),
    ],
)
def test_kernel_values_are_those_of_the_formula(name, formula):
    random = np.random.default_rng(3)
    x, y = (
        random.standard_normal((n, 6)).astype(np.float32) for n in (kernel_functions.CHUNK + 1, 3)
    )
    x_norms, y_norms = kernel_functions.squared_norms(x), kernel_functions.squared_norms(y)
    values = kernel_functions.Kernel(name, 0.3, degree=2, coef0=0.5).block(x, x_norms, y, y_norms)
    np.testing.assert_allclose(
        values, formula(x.astype(float), y.astype(float)), rtol=1e-4, atol=1e-5
    )


# Choice of the solver


@pytest.mark.parametrize(
    "classes, reach, wanted", [(3, 0, "oneDAL"), (4, 0, BLOCKS), (3, -1, BLOCKS)]
)
def test_onedal_fits_few_classes_up_to_its_reach(monkeypatch, caplog, classes, reach, wanted):
    if "sklearnex" not in CPU_BACKENDS:
        pytest.skip("scikit-learn-intelex has no package for this processor")
    rows, labels = (values[TRAIN_LABELS < classes] for values in (TRAIN, TRAIN_LABELS))
    monkeypatch.setattr(svm, "ONEDAL_REACH", len(rows) ** 2 * rows.shape[1] + reach)
    monkeypatch.setattr(progress.log, "propagate", True)
    with caplog.at_level("INFO"):
        model, solver = svm.fit(rows, labels, "sklearnex")
    assert solver == wanted
    assert ("oneDAL would take longer" in caplog.text) == (wanted == BLOCKS)
    expected = reference(rows=rows, labels=labels)
    np.testing.assert_array_equal(svm.predict(model, TEST), expected.predict(TEST))


@pytest.fixture
def gpu(monkeypatch):
    """A stand-in for CuPy, beside one for cuML."""
    return fake_cuml.install(monkeypatch)


@pytest.mark.parametrize("kernel", kernel_functions.KERNELS)
def test_the_pairs_of_cuml_make_one_model(gpu, kernel):
    model, solver = svm.fit(TRAIN, TRAIN_LABELS, "cuml", kernel)
    assert solver == "cuML"
    np.testing.assert_array_equal(svm.predict(model, TEST), reference(kernel).predict(TEST))


def test_rows_are_uploaded_once_and_where_memory_does_not_hold_them_with_every_pair(
    gpu, monkeypatch, caplog, tmp_path
):
    monkeypatch.setattr(progress.log, "propagate", True)
    caplog.set_level("INFO")
    svm.fit(TRAIN, TRAIN_LABELS, "cuml")[0].save(tmp_path / "rows at once")
    assert gpu.uploaded == TRAIN.nbytes and "each pair is copied" not in caplog.text
    gpu.total = 1 << 30
    svm.fit(TRAIN, TRAIN_LABELS, "cuml")[0].save(tmp_path / "pair by pair")
    assert gpu.uploaded >= (1 + 9) * TRAIN.nbytes and "each pair is copied" in caplog.text
    assert (tmp_path / "rows at once").read_bytes() == (tmp_path / "pair by pair").read_bytes()


@pytest.mark.parametrize("kernel", kernel_functions.KERNELS)
@pytest.mark.parametrize("rows", [4096, 64])
def test_a_gpu_predicts_the_classes_of_the_cpu(gpu, monkeypatch, kernel, rows):
    monkeypatch.setattr(arrays.CuPy, "rows", rows)
    model, _ = svm.fit(TRAIN, TRAIN_LABELS, "cuml", kernel)
    moved = gpu.moved["back"]
    found = svm.predict(model, TEST, backend="cuml")
    assert gpu.moved["back"] > moved and found.dtype == TRAIN_LABELS.dtype
    np.testing.assert_array_equal(found, svm.predict(model, TEST))
    largest = np.abs(decisions(model, TEST)).max()
    np.testing.assert_allclose(
        svm.decisions_on_gpu(model, TEST), decisions(model, TEST), atol=1e-4 * largest
    )


def test_a_gpu_with_little_memory_predicts_the_same(gpu):
    model, _ = svm.fit(TRAIN, TRAIN_LABELS, "cuml")
    gpu.total = gpu.used + 500_000
    np.testing.assert_array_equal(
        svm.predict(model, TEST, backend="cuml"), svm.predict(model, TEST)
    )
    assert gpu.most < gpu.total


def test_a_gpu_refuses_what_the_cpu_refuses(gpu):
    model, _ = svm.fit(TRAIN, TRAIN_LABELS, "cuml")
    broken = TEST.copy()
    broken[7, 3] = np.nan
    with pytest.raises(UserError, match="NaN or Inf, first in row 7"):
        svm.predict(model, broken, backend="cuml")
    with pytest.raises(UserError, match="fitted to 64 features, these rows have 63"):
        svm.predict(model, TEST[:, 1:], backend="cuml")


@pytest.mark.skipif(backends.gpu_count() > 0, reason="there is a GPU here")
def test_cuml_is_refused_without_a_gpu():
    with pytest.raises(UserError, match="cuml needs an NVIDIA GPU.*sklearn"):
        svm.fit(TRAIN, TRAIN_LABELS, "cuml")


# The saved model


@pytest.mark.parametrize("backend", CPU_BACKENDS)
@pytest.mark.parametrize("kernel", kernel_functions.KERNELS)
def test_a_saved_model_has_the_same_decisions(tmp_path, backend, kernel):
    model, _ = svm.fit(TRAIN, TRAIN_LABELS, backend, kernel)
    model.save(tmp_path / "model.safetensors")
    loaded = svm.load(tmp_path / "model.safetensors")
    np.testing.assert_array_equal(decisions(loaded, TEST), decisions(model, TEST))
    np.testing.assert_array_equal(svm.predict(loaded, TEST), svm.predict(model, TEST))
    assert (loaded.kernel, loaded.C) == (model.kernel, model.C)


def test_the_file_holds_only_arrays(tmp_path):
    svm.fit(TRAIN, TRAIN_LABELS, C=2.0, gamma=0.002)[0].save(tmp_path / "model.safetensors")
    arrays = safetensors.numpy.load_file(tmp_path / "model.safetensors")
    assert bytes(arrays["kernel"]) == b"rbf"
    assert [float(arrays[name][0]) for name in ("C", "gamma", "degree", "coef0")] == [
        2.0,
        0.002,
        3.0,
        0.0,
    ]
    assert arrays["support_vectors"].dtype == np.float32
    assert arrays["dual_coef"].shape == (9, len(arrays["support"]))


@pytest.mark.parametrize(
    "damage, words",
    [
        (lambda arrays: arrays.pop("dual_coef"), "dual_coef.* missing"),
        (lambda arrays: arrays.update(C=np.zeros(0)), "missing"),
        (lambda arrays: arrays.update(kernel=np.frombuffer(b"\xffxec", np.uint8)), "its kernel is"),
    ],
)
def test_a_file_that_is_not_a_model_is_refused(tmp_path, damage, words):
    path = tmp_path / "model.safetensors"
    svm.fit(TRAIN, TRAIN_LABELS)[0].save(path)
    arrays = safetensors.numpy.load_file(path)
    damage(arrays)
    safetensors.numpy.save_file(arrays, path)
    with pytest.raises(UserError, match=words):
        svm.load(path)


# Errors


@pytest.mark.parametrize(
    "settings, words",
    [
        ({"C": -1.0}, "svm_C is -1.0"),
        ({"C": 0}, "svm_C is 0"),
        ({"C": float("nan")}, "svm_C is nan"),
        ({"gamma": 0.0}, "svm_gamma is 0.0"),
        ({"gamma": "large"}, "svm_gamma is 'large'"),
        ({"kernel": "cosine"}, "svm_kernel is 'cosine'.*rbf, linear, poly"),
        ({"backend": "thunder"}, "svm_backend is 'thunder'"),
    ],
)
def test_settings_out_of_range_are_refused(settings, words):
    with pytest.raises(UserError, match=words):
        svm.fit(TRAIN, TRAIN_LABELS, **settings)


@pytest.mark.parametrize("value", [np.nan, np.inf])
def test_features_that_are_not_finite_are_refused_with_their_row(value):
    broken = TRAIN.copy()
    broken[kernel_functions.CHUNK + 5, 3] = value
    with pytest.raises(
        UserError, match=f"NaN or Inf, first in row {kernel_functions.CHUNK + 5}:.*learning_rate"
    ):
        svm.fit(broken, TRAIN_LABELS)
    model, _ = svm.fit(TRAIN, TRAIN_LABELS)
    with pytest.raises(UserError, match="NaN or Inf"):
        svm.predict(model, broken)


def test_one_class_is_refused():
    with pytest.raises(UserError, match="needs two classes, the training labels hold 1"):
        svm.fit(TRAIN, np.zeros(len(TRAIN), np.uint8))


def test_mismatched_rows_are_refused():
    with pytest.raises(UserError, match="600 rows of features but 599 labels"):
        svm.fit(TRAIN, TRAIN_LABELS[1:])
    model, _ = svm.fit(TRAIN, TRAIN_LABELS)
    with pytest.raises(UserError, match="fitted to 64 features, these rows have 63"):
        svm.predict(model, TEST[:, 1:])


# Estimates before the fit


def test_it_logs_expected_time_and_memory(monkeypatch, caplog):
    monkeypatch.setattr(progress.log, "propagate", True)
    monkeypatch.setattr(svm.psutil, "virtual_memory", lambda: types.SimpleNamespace(available=1000))
    with caplog.at_level("INFO"):
        svm.fit(TRAIN, TRAIN_LABELS, threads=2)
    assert "600 rows x 64 features, 45 class pairs, 2 at a time: about" in caplog.text
    assert "only 1.0 kB of memory are free" in caplog.text


def test_memory_bounds_how_many_pairs_are_solved_at_a_time(monkeypatch, caplog):
    monkeypatch.setattr(progress.log, "propagate", True)
    monkeypatch.setattr(svm, "PAIRS_MEMORY", 1.0)
    with caplog.at_level("INFO"):
        model, _ = svm.fit(TRAIN, TRAIN_LABELS, threads=4)
    assert "45 class pairs, 1 at a time" in caplog.text
    np.testing.assert_array_equal(svm.predict(model, TEST), reference().predict(TEST))


def test_an_interrupted_fit_ends_without_solving_the_other_pairs(monkeypatch):
    begun = []

    def interrupt(*arguments):
        begun.append(1)
        time.sleep(0.02)  # while this pair runs, those that wait can be called off
        raise KeyboardInterrupt

    rows = svm._RowsByClass.sorted_by_class(
        TRAIN, TRAIN_LABELS, np.arange(10, dtype=np.uint8), centered=True
    )
    monkeypatch.setattr(svm, "_announce", lambda *arguments: None)
    monkeypatch.setattr(svm, "_solve_pair", interrupt)
    with pytest.raises(KeyboardInterrupt):
        svm._solve_pairs(rows, kernel_functions.Kernel("rbf", 0.002), 10.0, 2)
    assert len(begun) < 10


# The stage


@pytest.fixture
def run_stage(tmp_path):
    """A function that runs fit_svm.py on artifacts of digits with these parameters; returns the
    finished process.
    """
    with artifacts.making(
        tmp_path / "data", manifest_files.spec("data", {"dataset": "digits"})
    ) as work:
        work.metrics["classes"] = [str(digit) for digit in range(10)]
        work.write_array("train_labels.npy", TRAIN_LABELS)
        work.write_array("test_labels.npy", TEST_LABELS)
    with artifacts.making(tmp_path / "features", manifest_files.spec("features")) as work:
        work.write_array("train.npy", TRAIN)
        work.write_array("test.npy", TEST)

    def run(**params):
        script = sources.SCRIPTS / "fit_svm.py"
        params = {"backend": "sklearn", "kernel": "rbf", "C": 10.0, "gamma": "scale", **params}
        digests = {path: programs.digest(path) for path in sources.closure(script)}
        spec = {"stage": "svm", "params": params, "sources": digests, "parents": {}}
        inputs = {name: str(tmp_path / name) for name in ("data", "features")}
        (tmp_path / "job.json").write_text(json.dumps({"spec": spec, "inputs": inputs}))
        return processes.python(
            script, "--job", tmp_path / "job.json", "--output", tmp_path / "svm", "--threads", "2"
        )

    return run


def test_the_stage_writes_a_machine_its_predictions_and_metrics(run_stage, tmp_path):
    done = run_stage()
    assert done.returncode == 0, done.stderr
    made = artifacts.Artifact(tmp_path / "svm")
    predictions = made.array("predictions.npy")
    assert predictions.dtype == np.uint8
    np.testing.assert_array_equal(predictions, reference().predict(TEST))
    np.testing.assert_array_equal(
        svm.predict(svm.load(made.path("model.safetensors")), TEST), predictions
    )
    decided = made.array("decisions.npy")
    assert decided.shape == (len(TEST), 45) and decided.dtype == np.float32
    np.testing.assert_array_equal(
        deciding.named(decided, np.arange(10), by_pairs=True), predictions
    )
    metrics = made.metrics
    assert metrics["accuracy"] == np.mean(predictions == TEST_LABELS)
    assert metrics["confusion"][3][3] == np.count_nonzero((TEST_LABELS == 3) & (predictions == 3))
    assert list(metrics["per_class"]) == [str(digit) for digit in range(10)]
    assert (metrics["backend"], metrics["kernel"], metrics["C"]) == ("sklearn", "rbf", 10.0)
    assert metrics["gamma"] == pytest.approx(1 / (64 * TRAIN.var()), rel=1e-6)
    assert metrics["support_vectors"] == len(reference().support_)
    assert metrics["solver"] == "libsvm on BLAS Gram blocks"
    assert metrics["fit_seconds"] > 0 and metrics["predict_seconds"] > 0


def test_the_stage_predicts_on_the_gpu_that_fitted_and_names_it(
    run_stage, gpu, monkeypatch, tmp_path
):
    monkeypatch.setattr(scores, "record", lambda work, inputs: None)
    params, used = {"backend": "cuml", "kernel": "rbf", "C": 10.0, "gamma": "scale"}, []
    right = svm.decisions_on_gpu
    monkeypatch.setattr(
        svm, "decisions_on_gpu", lambda *arguments: used.append(1) or right(*arguments)
    )
    with artifacts.making(tmp_path / "svm", manifest_files.spec("svm", params)) as work:
        fit_svm.make(
            work,
            {name: artifacts.Artifact(tmp_path / name) for name in ("data", "features")},
            params,
        )
    made = artifacts.Artifact(tmp_path / "svm")
    np.testing.assert_array_equal(made.array("predictions.npy"), reference().predict(TEST))
    assert used and gpu.moved["back"] and made.metrics["gpu"] == "Fake, driver 550.54.14, CuPy 0.0"
    assert made.metrics["solver"] == "cuML"


def test_the_stage_ends_with_one_line_on_a_mistake(run_stage, tmp_path):
    done = run_stage(C=-1)
    assert done.returncode == 1
    assert "svm_C is -1" in done.stderr.splitlines()[-1] and "Traceback" not in done.stderr
    assert not (tmp_path / "svm" / "manifest.json").exists()


# Shifted copies


def line(values):
    return np.array(values, np.float32)[:, None]


def test_pairs_vote_by_the_means_of_their_decisions_over_the_shifted_copies():
    # the decision of x is -x, for 3 against 5
    model, _ = svm.fit(line([-1, 1]), np.array([3, 5]), kernel="linear", C=10.0)
    rows, shifted = (
        line([0.2, 0.2]),
        [line([0.2, 0.3]), line([0.2, 0.4]), line([-1, -0.2]), line([-1, -0.3])],
    )
    (found,) = svm.decision_blocks(model, rows, shifted=shifted)
    np.testing.assert_allclose(found[:, 0], [0.28, -0.08], atol=1e-6)
    assert svm.predict(model, rows).tolist() == [5, 5]
    assert svm.predict(model, rows, shifted=shifted).tolist() == [3, 5], (
        "although three of five are 5"
    )


def test_decisions_of_many_classes_are_means_in_every_block(monkeypatch):
    model, _ = svm.fit(TRAIN, TRAIN_LABELS)
    shifted = [TEST[::-1], TEST + 1]
    expected = (
        decisions(model, TEST) + decisions(model, TEST[::-1]) + decisions(model, TEST + 1)
    ) / 3
    monkeypatch.setattr(svm, "PREDICT_ROWS", 64)
    found = np.concatenate(svm.decision_blocks(model, TEST, 2, shifted))
    np.testing.assert_allclose(found, expected, atol=1e-6)
    classes = np.argmax(deciding.votes(expected, 10), axis=1)
    np.testing.assert_array_equal(svm.predict(model, TEST, shifted=shifted), model.classes[classes])
