"""One text with many mutants of a kernel file, one of which is chosen at run time (schemata: Untch,
Offutt and Harrold, 1993).

The smallest expression between brackets, commas, assignments and the like that holds a mutation
becomes `(mutant(7) ? mutated : original)`, and a statement that a mutant leaves out `{ if
(!mutant(7)) statement }`.
"""

import bisect
import itertools
import re

MOST = 16383  # the largest number of a mutant
# For emulated.h: a library's chosen mutant, and which ones its kernels have met.
HEADER = """
#pragma GCC diagnostic ignored "-Wnarrowing"
extern "C" {
__attribute__((visibility("default"), weak)) int mutant_chosen = 0;
__attribute__((visibility("default"), weak)) unsigned char mutants_met[16384] = {};
}
__attribute__((noinline, no_sanitize("thread", "undefined"), no_sanitize_coverage)) inline bool mutant_met(int number) {
    mutants_met[number] = 1;
    return number == mutant_chosen;
}
inline unsigned truncated_bf16x2(float low, float high) {
    return (__float_as_uint(high) & 0xffff0000u) | __float_as_uint(low) >> 16;
}
inline unsigned truncated_f16x2(float low, float high) {
    return f16x2(__uint_as_float(__float_as_uint(low) & 0xffffe000u), __uint_as_float(__float_as_uint(high) & 0xffffe000u));
}
#define truncated_pair(low, high) (FLOAT16 ? truncated_f16x2(low, high) : truncated_bf16x2(low, high))
// A constant expression has no mutant: it is never met.
__attribute__((always_inline)) constexpr bool mutant(int number) {
    return !__builtin_is_constant_evaluated() && mutant_met(number);
}
"""
_HIDDEN = re.compile(r"//[^\n]*|/\*.*?\*/|^[ \t]*#(?:\\\n|[^\n])*", re.DOTALL | re.MULTILINE)
_TOKEN = re.compile(r"\d[\w.]*|\w+|<<=|>>=|->|\+\+|--|<<|>>|<=|>=|==|!=|&&|\|\||[-+*/%&|^]=|::|\S")
_NAME = re.compile(r"[A-Za-z_]")
_CLOSING = {"(": ")", "[": "]", "{": "}"}
_ASSIGNMENTS = {"=", "+=", "-=", "*=", "/=", "%=", "&=", "|=", "^=", "<<=", ">>="}
_ENDS = {",", ";"}
_WORDS_BEFORE = {"return", "else", "do", "case", "typename", "using"}
_TYPES = {"long", "unsigned", "const"}  # of more than one word, in a cast for instance
# before (...), behind which a statement begins
_HEADS = {"if", "for", "while", "switch", "constexpr"}


def with_all(text, mutations):
    """The text with the mutations {number: (start, end, new text)}, but for those in declarations;
    lines stay in place.
    """
    source = _Source(text)
    places = {}  # (start, end) -> numbers
    for number, mutation in mutations.items():
        place = source.place(*mutation)
        if place:
            places.setdefault(place, []).append(number)
    return source.written(
        0, len(text), sorted(places, key=lambda place: (place[0], -place[1])), places, mutations
    )


class _Source:
    def __init__(self, text):
        self.text = text
        self.code = _HIDDEN.sub(lambda found: re.sub(r"[^\n]", " ", found[0]), text)
        found = list(_TOKEN.finditer(self.code))
        self.tokens = [one[0] for one in found]
        self.starts, self.ends = [one.start() for one in found], [one.end() for one in found]
        self.partner, opened = {}, []
        for i, token in enumerate(self.tokens):
            if token in _CLOSING:
                opened.append(i)
            elif token in _CLOSING.values() and opened:
                j = opened.pop()
                self.partner[i], self.partner[j] = j, i

    def place(self, start, end, new):
        """(start, end) of what is written twice, or None where that cannot be."""
        old = self.code[start:end]
        line = self.code[self.code.rfind("\n", 0, start) + 1 : self.code.find("\n", end)]
        # some of them are evaluated when compiled and when run
        if "constexpr" in line or "static_assert" in line:
            return None
        if old.isdigit() or not new:
            return start, end
        first, last = (
            bisect.bisect_right(self.ends, start),
            bisect.bisect_left(self.starts, max(end, start + 1)) - 1,
        )
        stops = _ENDS if old.strip() in _ASSIGNMENTS else _ENDS | _ASSIGNMENTS | {"?", ":"}
        first, last = self._left(first, stops), self._right(last, stops)
        tokens = self.tokens[first : last + 1]
        if any(
            _NAME.match(one) and _NAME.match(other) and one not in _TYPES
            for one, other in itertools.pairwise(tokens)
        ):
            return None  # a declaration
        return self.starts[first], self.ends[last]

    def _left(self, i, stops):
        """The first token of the expression that token i belongs to."""
        while i > 0:
            before = self.tokens[i - 1]
            if before in ")]" and i - 1 in self.partner:
                opening = self.partner[i - 1]
                if before == ")" and opening and self.tokens[opening - 1] in _HEADS:
                    return i
                i = opening
            elif before in stops | {"(", "[", "{", "}"} | _WORDS_BEFORE:
                return i
            else:
                i -= 1
        return i

    def _right(self, i, stops):
        """Its last one. If token i opens a bracket, that is within."""
        if self.tokens[i] in _CLOSING:
            i = self.partner[i]
        while i + 1 < len(self.tokens):
            after = self.tokens[i + 1]
            if after in _CLOSING:
                i = self.partner[i + 1]
            elif after in stops | {")", "]", "}"}:
                return i
            else:
                i += 1
        return i

    def written(self, start, end, nested, places, mutations):
        """The text from start to end, in which the places `nested` are written for all their
        mutations.
        """
        parts, at = [], start
        while nested:
            place, nested = nested[0], nested[1:]
            inner = [other for other in nested if other[1] <= place[1]]
            nested = [other for other in nested if other[0] >= place[1]]
            parts += [
                self.text[at : place[0]],
                self._choice(place, places[place], inner, places, mutations),
            ]
            at = place[1]
        return "".join([*parts, self.text[at:end]])

    def _choice(self, place, numbers, inner, places, mutations):
        original = self.written(*place, inner, places, mutations)
        mutated = {}
        for number in numbers:
            start, end, new = mutations[number]
            if not new:
                return f"{{ if (!mutant({number})) {original} }}"
            code = self.code[place[0] : start] + new + self.code[end : place[1]]
            mutated[number] = code.replace("\n", " ")
        return (
            "("
            + "".join(f"mutant({number}) ? ({code}) : " for number, code in mutated.items())
            + f"({original}))"
        )
