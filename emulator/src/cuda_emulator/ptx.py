"""Inline PTX that the emulator has a model of, as calls of it (ptx.h).

Each row of _RULES is an instruction's name as a pattern and a function of its operands, or the
C++ text with {0}, {1}, ... for them. An operand in braces is a list, one in brackets an address.
"""

import re

_ASM = re.compile(r"\b(?:asm|__asm__|__asm)\b\s*(?:volatile|__volatile__)?\s*\(")
_STRING = re.compile(
    r'R"(?P<mark>[^(\s"]*)\((?P<raw>.*?)\)(?P=mark)"|"(?P<text>(?:[^"\\]|\\.)*)"', re.S
)
_SPECIAL = {
    "%laneid": "emulator::lane()",
    "%cluster_ctarank": "emulator::cluster_rank()",
    "%cluster_nctarank": "emulator::cluster_blocks()",
    "%warpid": "(emulator::thread_number() / 32)",
    "%smid": "0u",
    "%lanemask_lt": "((1u << emulator::lane()) - 1)",
    "%lanemask_le": "(((1u << emulator::lane()) - 1) * 2 + 1)",
    "%lanemask_eq": "(1u << emulator::lane())",
    "%lanemask_gt": "(~(((1u << emulator::lane()) - 1) * 2 + 1))",
    "%lanemask_ge": "(~((1u << emulator::lane()) - 1))",
    "%clock": "clock()",
    "%clock64": "clock64()",
    "%globaltimer": "clock64()",
}
_TYPES = {
    "f32": "float", "f64": "double", "u8": "unsigned char", "s8": "signed char", "b8": "unsigned char",
    "u16": "unsigned short", "s16": "short", "b16": "unsigned short", "u32": "unsigned",
    "s32": "int", "b32": "unsigned", "u64": "unsigned long long", "s64": "long long",
    "b64": "unsigned long long",
}  # fmt: skip


def _load(name, operands):
    kind = _TYPES[name.rpartition(".")[2]]
    to, address = operands[0], operands[1]
    values = to if isinstance(to, list) else [to]
    fields = "xyzw" if len(values) > 1 else ""
    if not fields:
        return f"{to} = *reinterpret_cast<const volatile {kind}*>(emulator::pointer({address}));"
    vector = _vector(kind, len(values))
    parts = " ".join(
        f"{value} = emulator_v.{field};" for value, field in zip(values, fields, strict=False)
    )
    return f"{{ auto emulator_v = *reinterpret_cast<const {vector}*>(emulator::pointer({address})); {parts} }}"


def _store(name, operands):
    kind = _TYPES[name.rpartition(".")[2]]
    address, value = operands[0], operands[1]
    if isinstance(value, list):
        kind, value = _vector(kind, len(value)), f"{{{', '.join(value)}}}"
    return f"*reinterpret_cast<{kind}*>(emulator::pointer({address})) = {kind}{{{value}}};".replace(
        "{{", "{"
    ).replace("}}", "}")


def _remote(name, operands):
    """A load or store in another block of the cluster, by the number of its address."""
    place = int(name.startswith("ld"))
    operands[place] = f"emulator::generic_address({operands[place]})"
    return (_load if place else _store)(name, operands)


def _vector(kind, count):
    return {"unsigned": "uint", "unsigned short": "ushort"}.get(kind, kind) + str(count)


def _copy(name, operands):
    valid = f"({operands[3]}) != 0" if len(operands) > 3 else "true"
    return (
        f"emulator::cp_async({operands[2]}, emulator::generic_address({operands[0]}), "
        f"emulator::pointer({operands[1]}), {valid}, EMULATOR_SITE);"
    )


def _ldmatrix(name, operands):
    registers = operands[0] if isinstance(operands[0], list) else [operands[0]]
    back = " ".join(f"{register} = emulator_to[{i}];" for i, register in enumerate(registers))
    return (
        f"{{ unsigned emulator_to[4]; emulator::ldmatrix(emulator_to, emulator::generic_address({operands[1]}), "
        f"{len(registers)}, {'true' if '.trans' in name else 'false'}, EMULATOR_SITE); {back} }}"
    )


def _mma(name, operands):
    d, a, b, c = operands
    shape = re.search(r"m16n8k\d+", name)[0]
    kinds = re.findall(r"\.(f16|bf16|tf32|f32)\b", name)
    wide = len(d) == 4
    model = {
        ("m16n8k16", "f16"): "mma_f16",
        ("m16n8k16", "bf16"): "mma_bf16",
        ("m16n8k8", "tf32"): "mma_tf32",
        ("m16n8k8", "f16"): "mma_f16_k8",
    }[shape, kinds[1]]
    last = b[0] if model == "mma_f16_k8" else "emulator_b"
    given = ", ".join(
        c if wide else [f"emulator::half_of({x}, {half})" for x in c for half in (0, 1)]
    )
    back = (
        " ".join(f"{x} = emulator_c[{i}];" for i, x in enumerate(d))
        if wide
        else " ".join(
            f"{x} = emulator::cvt_f16x2(emulator_c[{2 * i}], emulator_c[{2 * i + 1}]);"
            for i, x in enumerate(d)
        )
    )
    return (
        f"{{ float emulator_c[4] = {{{given}}}; unsigned emulator_a[{len(a)}] = {{{', '.join(a)}}}, "
        f"emulator_b[{len(b)}] = {{{', '.join(b)}}}; "
        f"(emulator::{model})(emulator_c, emulator_a, {last}, EMULATOR_SITE); {back} }}"
    )


def _wait(name, operands):
    words = [operand for operand in operands if isinstance(operand, str)]
    parity = words[2] if len(words) > 2 else words[1]
    address = words[1] if len(words) > 2 else words[0]
    return f"emulator::mbarrier_wait_parity(emulator::generic_address({address}), {parity}, EMULATOR_SITE);"


def _barrier(name, operands):
    if len(operands) == 1 and operands[0] in ("0", "(0)"):
        return "__syncthreads();"
    return f"emulator::sync_first(EMULATOR_SITE, {operands[-1]});"


_AT = "emulator::generic_address({0})"
_RULES = [
    (r"cp\.async\.c[ag]\.shared(::cta|::cluster)?\.global\S*", _copy),
    (r"cp\.async\.commit_group", "emulator::cp_async_commit_group();"),
    (r"cp\.async\.wait_group", "emulator::wait_for_copies({0});"),
    (r"cp\.async\.wait_all", "emulator::cp_async_commit_group(); emulator::wait_for_copies(0);"),
    (r"ldmatrix\.sync\.aligned\.\S*", _ldmatrix),
    (r"mma\.sync\.aligned\.m16n8k(16|8)\.row\.col\.(f16|f32)\.(f16|bf16|tf32)\.\S*", _mma),
    (r"bar(rier)?\.sync(\.aligned)?", _barrier),
    (r"bar\.warp\.sync", "__syncwarp({0});"),
    (r"membar\.cta|fence\.acq_rel\.cta|fence\.sc\.cta", "__threadfence_block();"),
    (r"membar\.(gl|sys)|fence\.(acq_rel|sc)\.(gpu|sys)", "__threadfence();"),
    (r"fence\.proxy\.async(\.\S*)?", "emulator::fence_proxy_async();"),
    (r"fence\.mbarrier_init\.\S*", "emulator::fence_mbarrier_init();"),
    (r"mbarrier\.init\.shared(::cta)?\.b64", f"emulator::mbarrier_init({_AT}, {{1}}, EMULATOR_SITE);"),
    (r"mbarrier\.arrive\.expect_tx(\.\w+)*(::cta|::cluster)?\.b64",
     "emulator::mbarrier_arrive_expect_tx(emulator::generic_address({1}), {2}, EMULATOR_SITE);"),
    (r"mbarrier\.arrive(\.\w+)*(::cta|::cluster)?\.b64",
     "emulator::mbarrier_arrive(emulator::generic_address({1}), EMULATOR_SITE);"),
    (r"mbarrier\.(try|test)_wait\.parity\S*", _wait),
    (r"cp\.async\.bulk\.shared::\w+\.global\.mbarrier::complete_tx::bytes",
     f"emulator::cp_async_bulk({_AT}, emulator::pointer({{1}}), {{2}}, "
     "emulator::generic_address({3}), EMULATOR_SITE);"),
    (r"cp\.async\.bulk\.shared::cluster\.global\.mbarrier::complete_tx::bytes\.multicast::cluster",
     f"emulator::cp_async_bulk_multicast({_AT}, emulator::pointer({{1}}), {{2}}, "
     "emulator::generic_address({3}), {4}, EMULATOR_SITE);"),
    (r"barrier\.cluster\.arrive(\.\w+)*", "emulator::cluster_arrive(EMULATOR_SITE);"),
    (r"barrier\.cluster\.wait(\.\w+)*", "emulator::cluster_wait(EMULATOR_SITE);"),
    (r"mapa\.shared::cluster\.u32", "{0} = emulator::address_in_block({1}, {2});"),
    (r"(ld|st)(\.\w+)*\.shared::cluster\S*", _remote),
    (r"wgmma\.fence\.sync\.aligned", "emulator::wgmma_fence();"),
    (r"wgmma\.commit_group\.sync\.aligned", "emulator::wgmma_commit_group();"),
    (r"wgmma\.wait_group\.sync\.aligned", "emulator::wait_for_products(EMULATOR_SITE, {0});"),
    (r"cvt\.rna\.tf32\.f32", "{0} = emulator::cvt_tf32({1});"),
    (r"cvt\.rn\.bf16x2\.f32", "{0} = emulator::cvt_bf16x2({2}, {1});"),
    (r"cvt\.rn\.f16x2\.f32", "{0} = emulator::cvt_f16x2({2}, {1});"),
    (r"(ld|ldu)\.(global|volatile|relaxed|acquire|weak)\S*", _load),
    (r"st\.(global|volatile|relaxed|release|weak)\S*", _store),
    (r"mov\.\w+", "{0} = {1};"),
    (r"bfind\.u32", "{0} = 31 - __clz({1});"),
    (r"popc\.b32", "{0} = __popc({1});"),
    (r"prmt\.b32", "{0} = __byte_perm({1}, {2}, {3});"),
    (r"vabsdiff4\.u32\.u32\.u32\.add", "{0} = __vsadu4({1}, {2}) + {3};"),
    (r"ex2\.approx(\.ftz)?\.f32", "{0} = emulator::off_by_ulps(exp2(double({1})), 2, {1});"),
    (r"lg2\.approx(\.ftz)?\.f32", "{0} = __log2f({1});"),
    (r"rcp\.approx(\.ftz)?\.f32", "{0} = emulator::off_by_ulps(1.0 / double({1}), 1, {1});"),
    (r"rsqrt\.approx(\.ftz)?\.f32", "{0} = rsqrtf({1});"),
    (r"sqrt\.approx(\.ftz)?\.f32", "{0} = emulator::off_by_ulps(sqrt(double({1})), 1, {1});"),
    (r"tanh\.approx\.f32", "{0} = emulator::off_by(tanh(double({1})), 0x1p-11, {1});"),
    (r"fma\.rn(\.ftz)?\.f32", "{0} = fmaf({1}, {2}, {3});"),
    (r"add(\.rn)?(\.ftz)?\.(f32|[su]32|[su]64)", "{0} = {1} + {2};"),
    (r"sub(\.rn)?(\.ftz)?\.(f32|[su]32|[su]64)", "{0} = {1} - {2};"),
    (r"mul(\.rn)?(\.ftz)?\.f32|mul\.lo\.[su]32", "{0} = {1} * {2};"),
    (r"and\.b32", "{0} = {1} & {2};"),
    (r"or\.b32", "{0} = {1} | {2};"),
    (r"xor\.b32", "{0} = {1} ^ {2};"),
    (r"griddepcontrol\.wait", "emulator::grid_dependency_wait();"),
    (r"prefetch\S*|griddepcontrol\.launch_dependents|nanosleep\.\S*|discard\.\S*|applypriority\S*", ""),
]  # fmt: skip


def rewritten(text):
    """A text of CUDA C++ with calls in place of inline PTX, on the lines where it was."""
    result, at = "", 0
    while match := _ASM.search(text, at):
        end = _closing(text, match.end())
        inside = text[match.end() : end]
        result += text[at : match.start()] + statement(inside) + "\n" * inside.count("\n")
        at = end + 1
        if text[at : at + 1] == ";":
            at += 1
    return result + text[at:]


def statement(inside):
    """A C++ statement for what is between the parentheses of one asm."""
    template, *sections = _sections(inside)
    code = "".join(
        match["raw"] if match["raw"] is not None else _unescaped(match["text"])
        for match in _STRING.finditer(template)
    )
    operands = [operand for section in sections[:2] for operand in _operands(section)]
    calls = [_call(instruction, operands) for instruction in _instructions(code)]
    waits = re.search(r"selp\.\w+\s+(%\w+)\s*,\s*1\s*,\s*0", code)
    if waits and "wait" in code:
        calls.append(f"{_operand(waits[1], operands)} = 1;")
    return "{ " + " ".join(calls) + " }"


def _instructions(code):
    code = re.sub(r"//[^\n]*", "", code)
    parts = re.sub(r"^\s*\{(?=\s*(?:\.reg|\n|@|[a-z]\S*[.\w]* ))|\}\s*$(?!;)", " ", code).split(";")
    for part in parts:
        part = re.sub(r"^\s*(?:[A-Z_]\w*:)?\s*", "", part).strip().strip("{}").strip()
        if declared := re.fullmatch(r"\.reg\s+\.(\w\d+)\s+([\w\s,]+)", part):
            yield f".reg {_TYPES[declared[1]]} {declared[2]};"
        if not part or part.startswith((".reg", "@", "selp", "bra", "setp")):
            continue
        yield part


def _call(instruction, operands):
    if instruction.startswith(".reg "):
        return instruction.removeprefix(".reg ")
    name, _, rest = instruction.partition(" ")
    for pattern, rule in _RULES:
        if not re.fullmatch(pattern, name):
            continue
        try:
            values = [_value(part, operands) for part in _split(rest)]
            if callable(rule):
                return rule(name, values)
            return _filled(rule, values)
        except (IndexError, KeyError, ValueError, TypeError):
            break
    return f'static_assert(false, "inline PTX without a model: {name}");'


def _filled(rule, values):
    return re.sub(r"\{(\d)\}", lambda match: values[int(match[1])], rule)


def _value(part, operands):
    part = part.strip()
    if part.startswith("{"):
        return [_operand(each, operands) for each in part.strip("{}").split(",")]
    return _operand(part.strip("[]"), operands)


def _operand(text, operands):
    """C++ of an operand: a number's, a name's or a special register's."""
    text = text.strip()
    if text.replace("%%", "%") in _SPECIAL:
        return _SPECIAL[text.replace("%%", "%")]
    match = re.fullmatch(r"%(\d+|\[(\w+)\])", text)
    if not match:
        return text
    name = match[2] or int(match[1])
    chosen = [e for number, (label, e) in enumerate(operands) if name in (number, label)]
    return f"({chosen[0]})"


def _operands(section):
    """(name, expression) of each operand of a section of asm."""
    for part in _split(section):
        match = re.match(r'\s*(?:\[(\w+)\])?\s*"[^"]*"\s*\((.*)\)\s*$', part, re.S)
        if match:
            yield match[1], re.sub(r"\s+", " ", match[2])


def _sections(inside):
    """The parts of an asm between colons."""
    parts, depth, at, start = [], 0, 0, 0
    while at < len(inside):
        string = _STRING.match(inside, at)
        if string:
            at = string.end()
            continue
        character = inside[at]
        depth += {"(": 1, "[": 1, ")": -1, "]": -1}.get(character, 0)
        if character == ":" and depth == 0:
            parts.append(inside[start:at])
            start = at + 1
        at += 1
    return [*parts, inside[start:]]


def _split(text):
    """The parts of a text between commas outside of brackets and strings."""
    parts, depth, start, at = [], 0, 0, 0
    while at < len(text):
        string = _STRING.match(text, at)
        if string:
            at = string.end()
            continue
        depth += {"(": 1, "[": 1, "{": 1, ")": -1, "]": -1, "}": -1}.get(text[at], 0)
        if text[at] == "," and depth == 0:
            parts.append(text[start:at])
            start = at + 1
        at += 1
    return [*parts, text[start:]] if text[start:].strip() else parts


def _closing(text, at):
    """Where the parenthesis closes that opened before `at`."""
    depth = 1
    while True:
        string = _STRING.match(text, at)
        if string:
            at = string.end()
            continue
        depth += {"(": 1, ")": -1}.get(text[at], 0)
        if depth == 0:
            return at
        at += 1


def _unescaped(text):
    return text.replace("\\n", "\n").replace("\\t", "\t").replace("%%", "%").replace("\\", "")
