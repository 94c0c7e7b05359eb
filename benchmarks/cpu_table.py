"""Write the table of benchmarks/cpu.json into docs/results.md, and name the sentences on it that
README.md and docs/results.md lack.

    python benchmarks/cpu_table.py [--check]

--check writes nothing. The exit status is 1 if a sentence is lacking or, with --check, the table is
out of date.
"""

import json
import pathlib
import re
import sys

import table

ROOT = pathlib.Path(__file__).resolve().parents[1]
README, RESULTS = ROOT / "README.md", ROOT / "docs/results.md"
BEGIN = "<!-- table: made by benchmarks/cpu_table.py -->"
HEADLINE = "autoencoder", 64
OURS = "Kernel Ladder"
LIBRARIES = {"tensorflow": "TensorFlow", "PyTorch": "PyTorch", "jax": "JAX"}


def main():
    record = json.loads((ROOT / "benchmarks/cpu.json").read_text("utf-8"))
    cases = fastest(record)
    peer = strongest(cases[HEADLINE])
    text = RESULTS.read_text("utf-8")
    wanted = table.with_table(text, section(record, cases, peer), BEGIN)
    if "--check" not in sys.argv:
        RESULTS.write_text(wanted, "utf-8")
    elif text != wanted:
        sys.exit("docs/results.md is out of date; run: python benchmarks/cpu_table.py")
    for page, sentence in sentences(record, cases, peer).items():
        if sentence not in " ".join(page.read_text("utf-8").split()):
            sys.exit(f"{page.relative_to(ROOT)} lacks: {sentence}")


def sentences(record, cases, peer):
    """What README.md and docs/results.md have to say."""
    ratios = [rows[peer]["ladder_is_faster_by"] for rows in cases.values() if peer in rows]
    headline = cases[HEADLINE]
    return {
        README: f"On {record['threads']} cores of an {processor(record)} the `cpu` rung trains"
        f" {speed(headline[OURS])} images/s, where {peer} reaches {speed(headline[peer])} images/s",
        RESULTS: f"{min(ratios):.1f} to {max(ratios):.1f} times as fast as {peer} on [a CPU]",
    }


def section(record, cases, peer):
    libraries = [
        name
        for name in LIBRARIES.values()
        if any(name in fastest_rows for fastest_rows in cases.values())
    ]
    head = ["network", "batch", OURS, *libraries, f"{peer} takes", "fastest in bfloat16"]
    rows = [
        [
            network,
            str(batch),
            *(milliseconds(fastest_rows.get(name)) for name in (OURS, *libraries)),
            f"{fastest_rows[peer]['ladder_is_faster_by']:.1f} x" if peer in fastest_rows else "",
            milliseconds(fastest_rows.get("bf16")),
        ]
        for (network, batch), fastest_rows in cases.items()
    ]
    about = f"{record['machine']['processor']}, {record['threads']} threads:"
    return "\n".join(["", about, "", *table.markdown([head, ["---"] * len(head), *rows]), ""])


def fastest(record):
    """{(network, batch): {library: its fastest row in float32, or bf16: that of all}}"""
    cases = {}
    for row in sorted(record["rows"], key=lambda row: -row["ms"]):
        fastest_rows = cases.setdefault((row["network"], row["batch"]), {})
        library = row["name"].split()[0]
        name = "bf16" if "bf16" in row["name"] else LIBRARIES.get(library, OURS)
        fastest_rows[name] = row
    return {case: cases[case] for case in sorted(cases, key=lambda case: (case[0], case[1]))}


def strongest(fastest_rows):
    """The peer that is fastest in float32."""
    return min(
        (name for name in fastest_rows if name not in (OURS, "bf16")),
        key=lambda name: fastest_rows[name]["ms"],
    )


def processor(record):
    """Such as Intel Xeon or AMD EPYC."""
    return " ".join(re.sub(r"\([RTM]+\)", "", record["machine"]["processor"]).split()[:2])


def speed(row):
    return f"{row['images_per_second']:.0f}"


def milliseconds(row):
    return "" if row is None else f"{row['ms']:.3g}" if row["ms"] < 100 else f"{row['ms']:.0f}"


if __name__ == "__main__":
    main()
