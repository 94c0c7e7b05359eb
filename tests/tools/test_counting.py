"""Instructions, occupancy, waves and predicted times; the committed counts are those of the rungs
as they are.
"""

import json
import runpy
import sys

import pytest

import assumptions
import count
import counting
import disassembly
import needs
import prediction
from assumptions import ASSUMPTIONS
from ladder.errors import UserError
from ladder.rungs import counted
from ladder.sources import ROOT
from prediction import A100, H200, RTX_3060

CODE = """
.text.first:
        /*0000*/                   MOV R1, c[0x0][0x28] ;
.L_x_0:
        /*0010*/                   LDG.E.CONSTANT R2, desc[UR4][R4.64] ;
        /*0020*/               @!P0 IADD3 R4, R4, 0x4, RZ ;
        /*0030*/                   NOP ;
        /*0040*/               @P0 BRA `(.L_x_0) ;
.L_x_1:
        /*0050*/                   LDS.128 R8, [R3] ;
        /*0060*/                   LDG.E.128 R12, desc[UR4][R4.64] ;
        /*0070*/                   FFMA R16, R8, R12, R16 ;
        /*0080*/                   FFMA R17, R9, R13, R17 ;
        /*0090*/                   FFMA.RZ R16, R10, R14, R16 ;
        /*00a0*/               @P1 BRA `(.L_x_1) ;
        /*00b0*/                   EXIT ;
"""


def test_the_loop_that_multiplies_is_the_one_that_counts():
    body = disassembly.body(CODE)
    assert body == disassembly.Body(
        True, instructions=6, products=3, global_loads=1, shared_words=4
    )


def test_products_and_copies_are_counted_apart_and_what_never_runs_is_not():
    code = CODE.replace("FFMA R16, R8, R12, R16", "HMMA.16816.F32.BF16 R16, R8, R12, R16")
    code = code.replace(
        "LDG.E.128 R12, desc[UR4][R4.64]", "LDGSTS.E.BYPASS.128 [R7], desc[UR4][R4.64]"
    )
    code = code.replace(
        "LDS.128 R8, [R3] ;",
        "LDSM.16.M88.4 R8, [R3] ;\n        /*0058*/              @!PT LDS RZ, [RZ] ;",
    )
    assert disassembly.body(code) == disassembly.Body(
        True, 6, products=3, global_loads=1, shared_words=4, matrices=1, copies=1
    )


def test_a_product_of_a_warpgroup_is_as_many_of_a_warp_as_it_has_eights_of_columns():
    code = CODE.replace(
        "FFMA R16, R8, R12, R16", "HGMMA.64x128x16.F32.BF16 R24, R88, gdesc[UR4], R24"
    )
    assert (disassembly.body(code).products, disassembly.body(code).matrices) == (3, 16)


def test_without_products_the_longest_loop_and_without_a_loop_all_instructions_count():
    loop, rest = CODE.split(".L_x_1:")
    assert disassembly.body(loop) == disassembly.Body(True, 3, 0, global_loads=1, shared_words=0)
    straight = rest.replace("@P1 BRA `(.L_x_1)", "EXIT")
    assert disassembly.body(straight) == disassembly.Body(
        False, 7, 3, global_loads=1, shared_words=4
    )


def loads(*instructions):
    """How many loads are under way at once with each of a loop of these instructions."""
    numbered = "\n".join(
        f"/*{16 * place:04x}*/ {text} ;"
        for place, text in enumerate((*instructions, "@P0 BRA `(.L_x_1)"))
    )
    return disassembly.kernel_loads(f".L_x_1:\n{numbered}")


def test_a_load_is_under_way_until_an_instruction_reads_it():
    one, other = "LDG.E R2, desc[UR4][R8.64]", "@!P1 LDG.E R3, desc[UR4][R10.64]"
    wide = "LDG.E.128.CONSTANT R4, desc[UR4][R2.64]"
    assert loads(one, "FADD R1, R1, R2", other, "FADD R1, R1, R3") == [1, 1]
    assert loads(one, other, "FADD R1, R1, R2", "FADD R1, R1, R3") == [2, 2]
    # what the round before asked for
    assert loads("FADD R1, R1, R2", one, "FADD R1, R1, R3", other) == [2, 2]
    # the second's address is what the first brings
    assert loads(one, wide, "FADD R1, R1, R7") == [1, 1]
    assert loads(wide, "STG.E desc[UR4][R8.64], R7", one) == [1, 1]
    assert loads("FADD R1, R2, R3") == []


@needs.DISASSEMBLER
def test_a_compiled_kernel_is_taken_apart():
    bodies = counting._bodies("gpu_basic/relu.cu", ())
    assert {name: (one.is_loop, one.global_loads) for name, one in bodies.items()} == {
        "relu_forward": (False, 1),
        "relu_backward": (False, 2),
    }


def test_without_the_disassembler_it_says_how_to_install_it(monkeypatch):
    disassembly._program.cache_clear()
    monkeypatch.setattr(disassembly, "PACKAGE", "no-such-package")
    with pytest.raises(UserError, match="pip install -r envs/kernels.txt"):
        disassembly.bodies(b"")
    disassembly._program.cache_clear()


@pytest.mark.parametrize(
    "gpu, threads, registers, shared, blocks",
    [
        (H200, 256, 32, 0, 8),  # 64 warps
        (H200, 128, 95, 0, 5),  # 96 registers of each of 32 threads: 21 warps of 4
        (H200, 32, 16, 0, 32),  # no more blocks
        (H200, 128, 32, 100 << 10, 2),  # shared memory, of which each block gives up 1 KiB
        (RTX_3060, 256, 32, 0, 6),
        (RTX_3060, 1, 16, 0, 16),
    ],
)
def test_resident_blocks_are_limited_by_warps_registers_blocks_and_shared_memory(
    gpu, threads, registers, shared, blocks
):
    assert prediction.resident_blocks(gpu, threads, registers, shared) == blocks


def launch(**changes):
    """Counts of 264 blocks of 4 warps, one loop that runs 10 times, in which nothing takes long."""
    no_global = {"requests": 0, "sectors": 0, "lines": 0, "bytes": 0}
    no_shared = {"requests": 0, "wavefronts": 0, "least": 0}
    return {
        "kernel": "a.cu a",
        "blocks": 264,
        "threads": 128,
        "bytes": 0,
        "registers": 32,
        "shared_bytes": 0,
        "resident": {gpu.name: 2 for gpu in prediction.GPUS},
        "body": {
            "is_loop": True,
            "instructions": 20,
            "products": 8,
            "global_loads": 2,
            "shared_words": 0,
            "matrices": 0,
            "copies": 0,
            "waits": 0,
        },
        "chain": {"longest": 0, "mean": 0},
        "per_warp": {
            "missed": 0,
            "global_stores": no_global,
            "shared_loads": no_shared,
            "shared_stores": no_shared,
            "global_loads": {"requests": 20, "sectors": 0, "lines": 0, "bytes": 0},
        },
        **changes,
    }


def test_occupancy_and_waves():
    assert prediction.occupancy(H200, launch()) == 2 * 4 / 64
    assert [prediction.waves(gpu, launch()) for gpu in prediction.GPUS] == [
        1,
        264 / 216,
        264 / 256,
        264 / 56,
        264 / 80,
    ]
    assert prediction.waves(A100, launch(resident={**launch()["resident"], "A100": 0})) is None


def test_a_launch_runs_where_a_block_has_room_and_copy_engines_on_hopper_alone():
    assert [gpu.name for gpu in prediction.GPUS if prediction.runs(gpu, launch())] == [
        gpu.name for gpu in prediction.GPUS
    ]
    crowded = launch(resident={**launch()["resident"], "RTX 3060": 0})
    assert not prediction.runs(RTX_3060, crowded) and prediction.runs(A100, crowded)
    copies = launch(per_warp={**launch()["per_warp"], "bulk_copies": {"requests": 1, "bytes": 128}})
    assert [gpu.name for gpu in prediction.GPUS if prediction.runs(gpu, copies)] == ["H200"]


def test_instructions_are_those_of_the_loop_as_often_as_its_loads_were_counted():
    assert prediction.issued_per_warp(launch()) == 10 * 20
    assert prediction.issued_per_warp(launch(body={**launch()["body"], "is_loop": False})) == 20
    in_shared = {
        **launch()["per_warp"],
        "shared_loads": {"requests": 90, "wavefronts": 90, "least": 90},
    }
    assert (
        prediction.issued_per_warp(
            launch(body={**launch()["body"], "shared_words": 3}, per_warp=in_shared)
        )
        == 30 * 20
    )


def test_words_that_the_compiler_loads_four_at_a_time_are_not_four_rounds():
    in_shared = {
        **launch()["per_warp"],
        "shared_loads": {"requests": 96, "wavefronts": 96, "least": 96},
    }
    merged = disassembly.body(CODE)  # one LDS.128
    assert prediction.issued_per_warp(launch(body=vars(merged), per_warp=in_shared)) == 24 * 6


# Round numbers, and nothing that does not overlap.
RATES = {
    "hertz": 2e9,
    "memory": 4.3e12,
    "cached": 0,
    "level_2": 1e13,
    "mma": 1,
    "launch": 0,
    "apart": 0,
    "wait": 1e-6,
    "formula": 1,
}
CLOCK = 1 / RATES["hertz"]


def times(gpu=H200, rates=RATES, **changes):
    """The seconds by resource of a launch with these changes, those in per_warp beside what it
    has.
    """
    per_warp = {**launch()["per_warp"], **changes.pop("per_warp", {})}
    return prediction.seconds_by_resource(gpu, launch(per_warp=per_warp, **changes), rates)


def test_each_resource_takes_its_time():
    """Two blocks of 4 warps on every multiprocessor of an H200, in one round."""
    assert times(bytes=4.3e12)["memory"] == 1
    assert times()["issue"] == pytest.approx(8 * 200 / 4 * CLOCK) and times()["latency"] == 0
    stores = {"requests": 1, "sectors": 16, "lines": 4, "bytes": 512}
    assert times(per_warp={"missed": 4, "global_stores": stores})["level 2"] == pytest.approx(
        264 * 4 * 20 * 32 / 1e13
    )
    shared = {"requests": 3, "wavefronts": 6, "least": 3}
    assert times(per_warp={"shared_loads": shared, "global_stores": stores})[
        "level 1"
    ] == pytest.approx(times(per_warp={"shared_loads": shared})["level 1"] + 8 * 4 * CLOCK)


def test_one_warp_of_a_block_has_one_scheduler():
    assert (
        times(blocks=132, threads=32)["issue"]
        == times(blocks=132)["issue"]
        == pytest.approx(200 * CLOCK)
    )


def test_an_a100_makes_two_multiply_adds_a_cycle_and_issues_four_instructions():
    multiplies = {**launch()["body"], "products": 18}
    assert times(body=multiplies)["issue"] == pytest.approx(8 * 200 / 4 * CLOCK)
    assert times(A100, body=multiplies)["issue"] == pytest.approx(3 * 4 * 180 / 2 * CLOCK)


def test_products_of_matrices_take_the_time_of_a_tensor_core():
    """10 iterations of 8 products: two blocks of 4 warps on four tensor cores, a product in 4
    cycles each.
    """
    body = {**launch()["body"], "matrices": 8}
    assert times(body=body)["tensor cores"] == pytest.approx(8 * 80 * CLOCK)
    assert times(RTX_3060, body=body)["tensor cores"] == pytest.approx(10 * 4 * 80 * 4 * CLOCK)


def test_bulk_copies_come_from_level_2_and_what_wgmma_reads_passes_shared_memory():
    """Two blocks of 8 warps on every multiprocessor, of which four copy and four multiply."""

    def moved(**places):
        return times(
            threads=256,
            per_warp={place: {"requests": 1, "bytes": count} for place, count in places.items()},
        )

    copied, both = moved(bulk_copies=1280), moved(bulk_copies=1280, operands=640)
    assert copied["level 2"] == pytest.approx(264 * 8 * 1280 / 1e13)
    assert copied["level 1"] == pytest.approx(16 * 10 * CLOCK) and both["level 1"] == pytest.approx(
        16 * 15 * CLOCK
    )


def test_products_of_wgmma_are_those_of_its_reads_at_a_peak_above_mma_sync():
    """A wgmma of 64x128x16, that reads 4096 bytes, is for each of four warps 16 products of
    16x8x16.
    """
    body, operands = (
        {**launch()["body"], "matrices": 8},
        {"operands": {"requests": 1, "bytes": 4096 / 4}},
    )
    assert times(body=body, per_warp=operands)["tensor cores"] == pytest.approx(8 * 16 * CLOCK)
    half = {**RATES, "mma": 0.5}
    assert times(rates=half, body=body, per_warp=operands) == times(body=body, per_warp=operands)
    assert times(rates=half, body=body)["tensor cores"] == 2 * times(body=body)["tensor cores"]


def test_a_launch_ends_with_its_longest_chain_after_the_mean_ones_before():
    """Two blocks to a multiprocessor, of whose sectors level 1 misses a half."""
    loads = {
        "missed": 10,
        "global_loads": {"requests": 20, "sectors": 20, "lines": 20, "bytes": 640},
    }
    chain = {"longest": 12, "mean": 4}
    assert times(per_warp=loads, chain=chain)["latency"] == pytest.approx(0.5 * 12e-6)
    assert times(per_warp=loads, chain=chain, blocks=132)["latency"] == pytest.approx(0.5 * 12e-6)
    assert times(per_warp=loads, chain=chain, blocks=3 * 264)["latency"] == pytest.approx(
        0.5 * (12 + 2 * 4) * 1e-6
    )


def test_copies_are_waited_for_as_often_as_the_loop_waits_or_memory_is_filled():
    waiting = {**launch()["body"], "waits": 1.5}
    assert times(body=waiting)["latency"] == pytest.approx(10 * 1.5e-6)
    assert times(body=waiting, blocks=2 * 264)["latency"] == pytest.approx(2 * 10 * 1.5e-6)
    bulk = {"bulk_copies": {"requests": 1, "bytes": 3000}}
    assert times(per_warp=bulk, shared_bytes=4000)["latency"] == pytest.approx(3e-6)


def test_what_a_scheduler_with_few_warps_has_to_do_does_not_overlap():
    """200 instructions and 100 cycles of shared memory of each warp: one, two and four warps on a
    scheduler.
    """
    shared = {
        **launch()["per_warp"],
        "shared_loads": {"requests": 25, "wavefronts": 25, "least": 25},
    }
    apart = {**RATES, "apart": 0.5}
    for resident, left in ((1, 0.5), (2, 0.25), (4, 0.125)):
        counts = launch(
            blocks=132 * resident,
            per_warp=shared,
            resident={gpu.name: 4 for gpu in prediction.GPUS},
        )
        assert prediction.seconds(H200, counts, RATES) == pytest.approx(resident * 200 * CLOCK)
        assert prediction.seconds(H200, counts, apart) == pytest.approx(
            resident * (200 + left * 100) * CLOCK
        )


def test_a_launch_with_one_block_more_takes_another_turn_of_a_multiprocessor():
    assert times(blocks=2 * 132 + 1)["issue"] == 1.5 * times()["issue"]


NOTHING = {**launch()["body"], "instructions": 1, "is_loop": False, "products": 0}


@pytest.mark.parametrize("gpu", prediction.GPUS, ids=lambda gpu: gpu.name)
def test_a_tiny_launch_takes_what_any_takes_and_a_copy_the_time_of_memory(gpu):
    tiny = prediction.interval(gpu, [launch(blocks=1, body=NOTHING)])
    least, most = ASSUMPTIONS["launch"].values[gpu.name]
    assert 0.9 * least <= tiny.low < tiny.high <= 1.1 * most + 1e-6
    copies = launch(bytes=10**10, body=NOTHING)
    fastest, slowest = ASSUMPTIONS["memory"].values[gpu.name]
    copied = prediction.interval(gpu, [copies])
    formula = ASSUMPTIONS["formula"].values[gpu.name]
    least = formula[0] * (1e10 - ASSUMPTIONS["cached"].values[gpu.name][0]) / fastest
    assert least < copied.low < copied.high < formula[1] * (1e10 / slowest + most)
    total = prediction.total(gpu, [copies], prediction.between(gpu, optimism=0))
    assert total == pytest.approx(formula[1] * (1e10 / slowest + most))


def test_what_level_2_has_from_the_launch_before_does_not_come_from_memory():
    cached = {**RATES, "cached": 30e6}
    assert times(rates=cached, bytes=30e6)["memory"] == 0 and times(rates=cached, bytes=73e6)[
        "memory"
    ] == pytest.approx(1e-5)


def test_a_block_with_tiles_hides_neither_its_first_loads_nor_its_last_stores():
    """10 iterations: a tenth of what is loaded comes before."""
    stores = {"requests": 1, "sectors": 1000, "lines": 250, "bytes": 32000}
    per_warp = {**launch()["per_warp"], "missed": 2000, "global_stores": stores}

    def waited(**changes):
        counts = launch(per_warp=per_warp, **changes)
        return prediction.seconds(H200, counts, RATES) - max(
            prediction.seconds_by_resource(H200, counts, RATES).values()
        )

    written = 264 * 4 * 32000 / 1e13
    assert waited(shared_bytes=1024) == pytest.approx(written + 2 * written / 10)
    assert waited() == pytest.approx(0, abs=1e-12), (
        "what has no tiles loads and stores all the time"
    )


def recorded(rung):
    record, plan = counted.read(), count.step_plan(rung, count.BATCH)
    return [
        record["launches"][counting.key(one, plan)] for one in counting.plan_checks.launches(plan)
    ]


@pytest.mark.parametrize("gpu", prediction.GPUS, ids=lambda gpu: gpu.name)
def test_no_assumption_shortens_a_step_at_its_pessimistic_end(
    gpu,
):
    launches = recorded("gpu_f16")  # which has room on all
    interval = prediction.interval(gpu, launches)
    assert all(less >= 0 and more >= 0 for less, more in interval.swings.values())
    best, worst = (
        prediction.total(gpu, launches, prediction.between(gpu, optimism)) for optimism in (1, 0)
    )
    assert best < interval.low < interval.middle < interval.high < worst
    twice = prediction.interval(gpu, launches * 2)
    assert (twice.low, twice.high) == pytest.approx((2 * interval.low, 2 * interval.high)), (
        "the same error in every launch"
    )


@pytest.mark.parametrize("name", ASSUMPTIONS)
def test_every_assumption_has_a_source_a_deciding_measurement_and_optimism_first(name):
    assumption = ASSUMPTIONS[name]
    assert any(source in assumption.source for source in assumptions.SOURCES)
    assert assumption.decided_by
    assert list(assumption.values) == [gpu.name for gpu in prediction.GPUS]
    grows = name in {"launch", "apart", "wait", "formula"}  # more of it takes longer
    assert all(
        best <= worst if grows else best >= worst for best, worst in assumption.values.values()
    )


def test_what_is_assumed_is_printed(capsys):
    assumptions.main()
    printed = capsys.readouterr().out
    assert "clock under load, GHz\n    H200: 1.98 to 1.98\n" in printed
    assert all(one.source in printed for one in ASSUMPTIONS.values())


def test_every_source_is_used():
    texts = " ".join(assumption.source for assumption in ASSUMPTIONS.values())
    assert [source for source in assumptions.SOURCES if source not in texts] == []


def test_a_span_has_two_digits():
    assert [counted.span(*ends) for ends in ((189.6, 284), (0.2299, 0.2966), (9.96, 10232))] == [
        "190-280",
        "0.23-0.30",
        "10-10000",
    ]


def test_the_record_is_of_the_rungs_as_they_are():
    assert count.outdated(counted.read()) == [], (
        "run: python benchmarks/count.py && python benchmarks/table.py"
    )


def test_the_launches_of_a_step_have_all_its_time_and_all_its_arithmetic():
    record = counted.read()
    made = count.step_plan("gpu_split_k", count.BATCH)
    places, kernels, flop, _, times, bounds = zip(
        *record["rungs"]["gpu_split_k"]["timeline"], strict=True
    )
    assert (
        sum(times) == pytest.approx(record["rungs"]["gpu_split_k"]["middle"], abs=0.3)
        and sum(flop) == made.flop
    )
    assert list(kernels) == [
        f"{launch.source} {launch.entry}" for launch in counting.plan_checks.launches(made)
    ]
    adding = [work for kernel, work in zip(kernels, flop, strict=True) if "add_splits" in kernel]
    assert adding and not any(adding), "the products are those of the launch before"
    assert bounds[places.index("advance")] == "launch", "it does next to nothing"


def test_a_rung_that_changed_is_outdated():
    record = counted.read()
    made = count.step_plan("gpu_opt_v1", count.BATCH)
    own = next(
        one
        for one in counting.plan_checks.launches(made)
        if one.source == "gpu_opt_v1/conv2d_forward.cu"
    )
    launches = {
        key: value for key, value in record["launches"].items() if key != counting.key(own, made)
    }
    stale = count.outdated({**record, "launches": launches})
    assert "gpu_opt_v1" in stale and "gpu_basic" not in stale
    rows = {**record["rungs"], "gpu_basic": {**record["rungs"]["gpu_basic"], "launches": 1}}
    assert count.outdated({**record, "rungs": rows}) == ["gpu_basic"]


def test_the_program_says_which_rungs_changed(monkeypatch, tmp_path):
    record = counted.read()
    (tmp_path / "counts.json").write_text(
        json.dumps({"launches": {}, "rungs": {"gpu_basic": record["rungs"]["gpu_basic"]}})
    )
    monkeypatch.setattr(counted, "RECORD", tmp_path / "counts.json")
    monkeypatch.setattr(sys, "argv", ["count.py", "--check"])
    with pytest.raises(
        SystemExit,
        match=r"^gpu_basic changed since it was counted; run: python benchmarks/count.py$",
    ):
        runpy.run_path(str(ROOT / "benchmarks/count.py"), run_name="__main__")
