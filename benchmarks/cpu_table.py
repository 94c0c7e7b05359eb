"""Write what benchmarks/cpu.json says into README.md and docs/results.md.

    python benchmarks/cpu_table.py [--check]

--check writes nothing and exits with 1 if a page is out of date.
"""

import json
import pathlib
import re
import sys
import textwrap

import table

ROOT = pathlib.Path(__file__).resolve().parents[1]
BEGIN = "<!-- table: made by benchmarks/cpu_table.py -->"
HEADLINE = "autoencoder", 64
OURS = "Kernel Ladder"
LIBRARIES = {"tensorflow": "TensorFlow", "PyTorch": "PyTorch", "jax": "JAX"}


def main():
    record = json.loads((ROOT / "benchmarks/cpu.json").read_text("utf-8"))
    late = False
    for name, change in (("README.md", readme), ("docs/results.md", results)):
        page = ROOT / name
        text = page.read_text("utf-8")
        wanted = change(text, record)
        late |= text != wanted
        if "--check" not in sys.argv:
            page.write_text(wanted, "utf-8")
    if "--check" in sys.argv and late:
        sys.exit("out of date: run benchmarks/cpu_table.py")


def readme(text, record):
    fastest_rows = fastest(record)[HEADLINE]
    peer = strongest(fastest_rows)
    return replaced(
        text,
        r"On \w+ cores of an .* the `cpu` rung trains \d+ images/s, where \w+ reaches \d+ images/s",
        f"On {record['threads']} cores of an {processor(record)} the `cpu` rung trains"
        f" {speed(fastest_rows[OURS])} images/s, where {peer} reaches {speed(fastest_rows[peer])} images/s",
    )


def results(text, record):
    cases = fastest(record)
    peer = strongest(cases[HEADLINE])
    ratios = [
        fastest_rows[peer]["ladder_is_faster_by"]
        for fastest_rows in cases.values()
        if peer in fastest_rows
    ]
    text = replaced(
        text,
        r"[\d.]+ to [\d.]+ times as fast as \w+ on \[a CPU\]",
        f"{min(ratios):.1f} to {max(ratios):.1f} times as fast as {peer} on [a CPU]",
    )
    return table.with_table(text, section(record, cases, peer), BEGIN)


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
            batch,
            *(milliseconds(fastest_rows.get(name)) for name in (OURS, *libraries)),
            f"{fastest_rows[peer]['ladder_is_faster_by']:.1f} x" if peer in fastest_rows else "",
            milliseconds(fastest_rows.get("bf16")),
        ]
        for (network, batch), fastest_rows in cases.items()
    ]
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join(
        [
            "",
            f"{record['machine']['processor']}, {record['threads']} threads:",
            "",
            *(f"| {' | '.join(map(str, line))} |" for line in lines),
            "",
        ]
    )


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


def replaced(text, pattern, sentence):
    """The text with `sentence` for the one place of the pattern; its item of a list is set in lines
    anew.
    """
    items = re.split(r"(?m)^(?=- |\d+\. |\n)", text)
    (place,) = [n for n, item in enumerate(items) if re.search(pattern, " ".join(item.split()))]
    item = re.sub(pattern, sentence, " ".join(items[place].split()))
    items[place] = (
        textwrap.fill(
            item,
            100,
            subsequent_indent=" " * (item.index(" ") + 1),
            break_long_words=False,
            break_on_hyphens=False,
        )
        + "\n"
    )
    return "".join(items)


if __name__ == "__main__":
    main()
