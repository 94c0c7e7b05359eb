"""Which rung `auto` takes, and the reason why another cannot run here."""

import itertools
import json

import pytest

import assumptions
from ladder.arithmetic import multipliers
from ladder.errors import UserError
from ladder.machine import driver
from ladder.rungs import catalog, counted

TURING = driver.Gpu("Tesla T4", "sm_75", 15 << 30, 64 << 10)
H200 = driver.Gpu("NVIDIA H200", "sm_90", 140 << 30, 227 << 10)


@pytest.fixture
def machine(monkeypatch):
    """A function that pretends that this machine has the GPU, a driver for `cuda`, and the packages
    `installed`.
    """

    def pretend(gpu, *installed, cuda=(12, 4), cupy=12):
        monkeypatch.setattr(driver, "gpu", lambda: gpu)
        monkeypatch.setattr(driver, "gpu_count", lambda: 1 if gpu else 0)
        monkeypatch.setattr(driver, "cuda_version", lambda: cuda)
        monkeypatch.setattr(catalog, "_cupy_toolkit", lambda: cupy if "cupy" in installed else None)
        monkeypatch.setattr(catalog, "_installed", lambda package: package in installed)
        monkeypatch.setattr(catalog, "_bindings", lambda: None)

    return pretend


def first(folder):
    """(rung, reason) of the first choice."""
    return next(iter(catalog.candidates("float32", folder).items()))


def record(folder, fastest, precision="float32", **changes):
    made = {"machine": catalog.machine() | changes, "fastest": {precision: fastest}}
    (folder / catalog.RECORD).write_text(json.dumps(made))


EXACT, OPT = "float32", "gpu_opt_v2"
PACKED = ["gpu_3xtf32_packed", OPT]
HALVES = ["gpu_3xf16_sm90", *PACKED]
# Card -> what `auto` tries first and next, by precision, before what runs on any GPU.
TRIED = {
    ("Tesla T4", "sm_75"): [[OPT], [OPT], [OPT], ["gpu_f16", OPT]],
    ("NVIDIA A100-SXM4-80GB", "sm_80"): [
        PACKED,
        ["gpu_tf32", *PACKED],
        ["gpu_bf16", *PACKED],
        ["gpu_f16", *PACKED],
    ],
    ("NVIDIA GeForce RTX 3060", "sm_86"): [
        [OPT],
        ["gpu_tf32", OPT],
        ["gpu_bf16", OPT],
        ["gpu_f16", OPT],
    ],
    ("NVIDIA GeForce RTX 4090", "sm_89"): [
        [OPT],
        ["gpu_tf32", OPT],
        ["gpu_bf16", OPT],
        ["gpu_f16", OPT],
    ],
    ("NVIDIA H200", "sm_90"): [
        HALVES,
        ["gpu_tf32", *HALVES],
        ["gpu_bf16_sm90", "gpu_bf16", *HALVES],
        ["gpu_f16_sm90", "gpu_f16", *HALVES],
    ],
    ("NVIDIA B200", "sm_100"): [
        PACKED,
        ["gpu_tf32", *PACKED],
        ["gpu_bf16", *PACKED],
        ["gpu_f16", *PACKED],
    ],
    ("NVIDIA GeForce RTX 5090", "sm_120"): [
        [OPT],
        ["gpu_tf32", OPT],
        ["gpu_bf16", OPT],
        ["gpu_f16", OPT],
    ],
    ("NVIDIA Thor", "sm_110"): [
        PACKED,
        ["gpu_tf32", *PACKED],
        ["gpu_bf16", *PACKED],
        ["gpu_f16", *PACKED],
    ],
}
OLDER = {("NVIDIA GeForce GTX 1080", "sm_61"), ("Tesla V100-SXM2-16GB", "sm_70")}


def gpu(name, architecture):
    return driver.Gpu(name, architecture, 8 << 30, 64 << 10)


@pytest.mark.parametrize("card", TRIED, ids=lambda card: card[0])
def test_what_auto_tries_on_a_card_before_anything_was_measured(machine, tmp_path, card):
    machine(gpu(*card), "cupy", cuda=(13, 0), cupy=13)
    for precision, tried in zip(multipliers.PRECISIONS, TRIED[card], strict=True):
        found = catalog.candidates(precision, tmp_path)
        assert list(found) == [*tried, "gpu_gemm", "gpu_opt_v1", "gpu_basic", "cpu"]
        assert {catalog.RUNGS[rung].precision for rung in found} <= {"float32", precision}
        assert all("results/parity.html" in why and "\n" not in why for why in found.values())
        assert all(catalog.unavailable(rung) is None for rung in found)


@pytest.mark.parametrize(
    "card, name", [(card, name) for card in TRIED for name in assumptions.NAMES if name in card[0]]
)
def test_auto_tries_first_what_is_predicted_the_fastest(machine, tmp_path, card, name):
    """Among those made for the precision, as a step was predicted with the products of that."""
    machine(gpu(*card), "cupy")
    predicted = {
        rung: sum(row["predicted"][name])
        for rung, row in counted.read()["rungs"].items()
        if name in row["predicted"]
    }
    for precision in multipliers.PRECISIONS:
        fit = [
            rung
            for rung in predicted
            if catalog.is_for_auto(rung) and catalog.RUNGS[rung].precision in (EXACT, precision)
        ]
        made_for = [rung for rung in fit if catalog.RUNGS[rung].precision == precision]
        fastest = min(made_for or fit, key=predicted.get)
        assert next(iter(catalog.candidates(precision, tmp_path))) == fastest


@pytest.mark.parametrize("card", sorted(OLDER), ids=lambda card: card[0])
def test_a_card_too_old_for_every_rung_gets_the_cpu_and_the_reason_without_packages(
    machine, tmp_path, card
):
    for installed in ((), ("cupy",)):
        machine(gpu(*card), *installed)
        for precision in multipliers.PRECISIONS:
            ((rung, why),) = catalog.candidates(precision, tmp_path).items()
            assert rung == "cpu"
            assert why.startswith(
                f"a GPU rung needs a GPU of sm_75 or newer, and the {card[0]} here is {card[1]};"
            )


@pytest.mark.parametrize("bindings, cupy", [(12, 12), (None, 12), (12, 13)])
def test_a_card_newer_than_the_compiler_gets_the_cpu_and_the_cure_in_one_line(
    machine, tmp_path, monkeypatch, bindings, cupy
):
    machine(gpu("NVIDIA Thor", "sm_110"), "cupy", cuda=(13, 0), cupy=cupy)
    monkeypatch.setattr(catalog, "_bindings", lambda: bindings)
    ((rung, why),) = catalog.candidates("float32", tmp_path).items()
    assert rung == "cpu" and "\n" not in why
    assert why.startswith(
        "a GPU rung needs the compiler of CUDA 13 for NVIDIA Thor (sm_110), and the packages here are for "
    )
    assert "install cupy-cuda13x[ctk] cuml-cu13 nvidia-cuda-nvrtc" in why
    machine(gpu("NVIDIA Thor", "sm_110"), "cupy", cuda=(13, 0), cupy=13)
    monkeypatch.setattr(catalog, "_bindings", lambda: 13)
    assert next(iter(catalog.candidates("float32", tmp_path))) == PACKED[0]


def test_auto_is_the_default_of_the_kind_of_machine_before_anything_was_measured(machine, tmp_path):
    machine(None, "numba")
    assert first(tmp_path)[0] == "cpu"
    machine(H200, "cupy", "numba")
    assert first(tmp_path)[0] == HALVES[0]
    machine(H200, "numba")  # a GPU without CuPy is no GPU
    name, how = first(tmp_path)
    assert (
        name == "cpu"
        and how.startswith("a GPU rung needs CuPy, not installed here (")
        and "results/parity.html" in how
    )


def test_auto_is_the_fastest_that_passed_on_this_machine(machine, tmp_path):
    machine(H200, "cupy", "numba")
    record(tmp_path, "gpu_opt_v1")
    assert first(tmp_path) == ("gpu_opt_v1", "the fastest that passed on this machine")


@pytest.mark.parametrize("change", [{"host": "another"}, {"gpu": "Tesla T4"}, {"gpu": None}])
def test_what_another_machine_measured_does_not_count(machine, tmp_path, change):
    machine(H200, "cupy")
    record(tmp_path, "cpu", **change)
    assert first(tmp_path)[0] == HALVES[0]


def test_a_rung_that_can_no_longer_run_is_not_taken(machine, tmp_path):
    machine(H200, "cupy")
    record(tmp_path, "gpu_basic")
    machine(H200)
    assert first(tmp_path)[0] == "cpu"


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"{",
        b"[]",
        b'{"fastest": "cpu"}',
        b'{"machine": 1, "fastest": "x"}',
        b"\xff\xfe\0",
        b"[" * 10**5,
        b'{"a":' * 10**5,
        b"1" * 10**5,
        b'{"machine": {}, "fastest": []}',
        b'{"machine": {}, "fastest": {"float32": []}}',
    ],
    ids=range(11),
)
def test_a_damaged_record_is_no_record(machine, tmp_path, data):
    machine(None)
    (tmp_path / catalog.RECORD).write_bytes(data)
    assert first(tmp_path)[0] == "cpu"


def test_a_record_of_a_rung_that_is_gone_is_no_record(machine, tmp_path):
    machine(None)
    record(tmp_path, "gpu_opt_v0")
    assert first(tmp_path)[0] == "cpu"


def test_after_what_was_measured_come_the_other_rungs_of_the_gpu_then_the_cpu(machine, tmp_path):
    machine(H200, "cupy")
    record(tmp_path, "gpu_opt_v1")
    assert list(catalog.candidates("float32", tmp_path)) == [
        "gpu_opt_v1",
        *HALVES,
        "gpu_gemm",
        "gpu_basic",
        "cpu",
    ]
    machine(None, "cupy")
    assert list(catalog.candidates("float32", tmp_path)) == ["cpu"]


@pytest.mark.parametrize("fastest", ["gpu_opt_v1", "gpu_tf32", "gpu_3xtf32", "cpu"])
def test_auto_never_takes_a_lower_precision_than_is_asked_for(machine, tmp_path, fastest):
    machine(H200, "cupy")
    for recorded, asked in itertools.product(multipliers.PRECISIONS, multipliers.PRECISIONS):
        (tmp_path / catalog.RECORD).unlink(missing_ok=True)
        unmeasured = next(iter(catalog.candidates(asked, tmp_path)))
        record(tmp_path, fastest, recorded)
        taken = catalog.candidates(asked, tmp_path)
        assert {catalog.RUNGS[rung].precision for rung in taken} <= {"float32", asked}
        fits = recorded == asked and catalog.RUNGS[fastest].precision in ("float32", asked)
        assert next(iter(taken)) == (fastest if fits else unmeasured)


def test_a_gpu_without_tensor_cores_for_a_rung_gets_one_line_and_runs_the_others(machine):
    machine(TURING, "cupy", "numba")
    assert catalog.unavailable("gpu_tf32") == (
        "variant gpu_tf32 needs a GPU of sm_80 or newer, and the Tesla T4 here is sm_75; set variant to auto, cpu or "
        "cpu_sequential"
    )
    assert catalog.unavailable("gpu_gemm") is None


BLACKWELL = driver.Gpu("NVIDIA B200", "sm_100", 180 << 30, 227 << 10)


@pytest.mark.parametrize(
    "gpu",
    [BLACKWELL, driver.Gpu("NVIDIA A100", "sm_80", 80 << 30, 163 << 10)],
    ids=lambda gpu: gpu.name,
)
def test_hoppers_rung_is_of_no_use_to_older_and_newer_gpus(machine, tmp_path, gpu):
    machine(gpu, "cupy", "numba")
    assert catalog.unavailable("gpu_bf16_sm90") == (
        f"variant gpu_bf16_sm90 needs a GPU of sm_90, and the {gpu.name} here is {gpu.architecture}; set variant to auto, cpu "
        "or cpu_sequential"
    )
    record(tmp_path, "gpu_bf16_sm90", "bfloat16")
    assert next(iter(catalog.candidates("bfloat16", tmp_path))) == "gpu_bf16"
    machine(H200, "cupy", "numba")
    assert catalog.unavailable("gpu_bf16_sm90") is None


@pytest.mark.parametrize(
    "gpu, installed, cuda, cupy, words",
    [
        (None, ["cupy", "numba"], None, 12, "needs an NVIDIA GPU and no driver answers here; "),
        (
            H200,
            ["numba"],
            (12, 4),
            12,
            "needs CuPy, not installed here (pip install -r envs/gpu.txt); ",
        ),
        (
            H200,
            ["cupy", "numba"],
            (12, 4),
            13,
            "CuPy here is for CUDA 13, the driver runs CUDA 12.4 at most; update the driver; ",
        ),
        (
            driver.Gpu("Tesla P100", "sm_60", 1, 1),
            ["cupy", "numba"],
            (12, 4),
            12,
            "needs a GPU of sm_75 or newer, and the Tesla P100 here is sm_60; ",
        ),
    ],
)
def test_the_reason_is_one_line_that_says_what_can_run(machine, gpu, installed, cuda, cupy, words):
    machine(gpu, *installed, cuda=cuda, cupy=cupy)
    reason = catalog.unavailable("gpu_basic")
    assert reason.startswith("variant gpu_basic needs ") and "\n" not in reason
    assert words + "set variant to auto, cpu or cpu_sequential" in reason


def test_a_machine_that_has_all_it_needs_has_no_reason(machine):
    machine(H200, "cupy", "numba", cuda=(13, 0), cupy=12)  # a newer driver runs older CUDA
    assert catalog.available() == list(catalog.RUNGS)


def test_without_numba_the_sequential_rung_is_not_offered(machine):
    machine(None)
    assert catalog.unavailable("cpu_sequential") == (
        "variant cpu_sequential needs Numba, not installed here (pip install -r envs/cpu.txt); set variant to auto or cpu"
    )
    assert "auto or cpu" in catalog.unavailable("gpu_basic")


def test_a_row_in_a_folder_of_kernels_is_an_own_rung(tmp_path):
    for name in ("mine", "another", "without_row"):
        (tmp_path / name).mkdir()
    (tmp_path / "mine/rung.toml").write_text('technique = "less"\nbelow = "gpu_basic"\n')
    (tmp_path / "another/rung.toml").write_text('below = "mine"\ntechnique = "more"\n')
    found = catalog._own_rungs(tmp_path)
    assert list(found.items()) == [
        ("another", catalog.Rung("cuda", "more", "mine", "own")),
        ("mine", catalog.Rung("cuda", "less", "gpu_basic", "own")),
    ]


@pytest.mark.parametrize(
    "row, fault",
    [
        (b'technique = "less"', "it must have the texts technique and below, and nothing else"),
        (
            b'technique = "less"\nbelow = 1',
            "it must have the texts technique and below, and nothing else",
        ),
        (
            b'technique = "less"\nbelow = "gpu_basic"\nrole = "rung"',
            "it must have the texts technique and below, and nothing else",
        ),
        (b"technique = less", "Invalid value"),
        (b"\xff", "can't decode byte 0xff"),
        (b"#" * 10**5, "10,000 at most"),
    ],
)
def test_a_row_that_cannot_be_read_is_named_in_one_line(tmp_path, row, fault):
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine/rung.toml").write_bytes(row)
    with pytest.raises(UserError) as refused:
        catalog._own_rungs(tmp_path)
    text = str(refused.value)
    assert "mine/rung.toml" in text and fault in text and "\n" not in text and len(text) < 300


@pytest.mark.parametrize("role", ["lesson", "own"])
def test_auto_takes_neither_a_lesson_nor_an_own_rung(machine, tmp_path, monkeypatch, role):
    machine(H200, "cupy")
    monkeypatch.setitem(catalog.RUNGS, "other", catalog.Rung("cuda", "", "gpu_basic", role))
    record(tmp_path, "other")
    assert catalog.uses_gpu("other") and "other" not in catalog.candidates("float32", tmp_path)
    monkeypatch.setitem(catalog.RUNGS, "other", catalog.Rung("cuda", "", "gpu_basic"))
    assert next(iter(catalog.candidates("float32", tmp_path))) == "other"
