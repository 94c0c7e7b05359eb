"""What the text of a kernel declares: types of shared arrays, launch bounds.

g++ keeps none of this in what it compiles. A declaration that is written in another way than most
is not match, and then a message has a number in place of a name.
"""

import ast
import dataclasses
import math
import operator
import re

_SIZES = {
    **dict.fromkeys(("char", "bool", "int8_t", "uint8_t"), 1),
    **dict.fromkeys(("short", "half", "__half", "__nv_bfloat16", "int16_t", "uint16_t"), 2),
    **dict.fromkeys(("int", "unsigned", "float", "int32_t", "uint32_t", "half2", "__half2"), 4),
    **dict.fromkeys(("double", "long", "int64_t", "uint64_t", "size_t", "float2", "int2"), 8),
    **dict.fromkeys(("float4", "int4", "uint4", "double2"), 16),
}
_CONSTANT = re.compile(
    r"^[ \t]*#define[ \t]+(\w+)[ \t]+([^\n]+)$"
    r"|\b(?:const|constexpr)\s+(?:static\s+|unsigned\s+|const\s+)*"
    r"(?:int|size_t|unsigned)\s+(\w+\s*=[^;{]+)[;{]",
    re.MULTILINE,
)
_TYPEDEF = re.compile(r"\btypedef\s+([\w\s]+?)\s+(\w+)\s*;|\busing\s+(\w+)\s*=\s*([\w\s]+?)\s*;")
_OPERATORS = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.floordiv,
    ast.FloorDiv: operator.floordiv,
    ast.LShift: operator.lshift,
}


@dataclasses.dataclass(frozen=True)
class SharedArray:
    """item: bytes of an element; shape: its dimensions, None where they are not known."""

    name: str
    item: int
    shape: tuple | None

    def element(self, offset):
        """The text of the element at `offset` bytes."""
        index = offset // self.item
        if self.shape == ():
            return self.name
        if len(self.shape or ()) < 2 or not 0 <= index < math.prod(self.shape):
            return f"{self.name}[{index}]"
        places = []
        for size in reversed(self.shape):
            index, place = divmod(index, size)
            places.insert(0, f"[{place}]")
        return self.name + "".join(places)


class Declarations:
    """What a text without comments declares; options: of the compiler, for its macros."""

    def __init__(self, text, options=()):
        self.text = text
        self._constants = {}
        for name, value, constants in _CONSTANT.findall(text):
            several = re.findall(r"(\w+)\s*=\s*([^,]+)", constants)
            self._constants |= {name: value} if name else dict(several)
        self._sizes = dict(_SIZES)
        for type_, name, other, other_type in _TYPEDEF.findall(text):
            if size := self._size_of(type_ or other_type):
                self._sizes[name or other] = size
        macros = (option[2:].partition("=") for option in options if option.startswith("-D"))
        self._constants |= {name: value for name, _, value in macros}

    def _size_of(self, type_):
        """Bytes of a type by the first word that is known, 0 without one."""
        words = re.findall(r"\w+", type_)
        return next((self._sizes[word] for word in words if word in self._sizes), 0)

    def launch_bounds(self, kernel):
        """The most threads of a block by its __launch_bounds__, or None."""
        numbers = self._attribute(kernel, "__launch_bounds__")
        return numbers[0] if numbers else None

    def cluster_dims(self, kernel):
        """The blocks of a cluster by its __cluster_dims__, or None."""
        numbers = self._attribute(kernel, "__cluster_dims__")
        return None if None in numbers else tuple(numbers) or None

    def _attribute(self, kernel, name):
        """The numbers in the parentheses of such an attribute, none without it."""
        for start in self._starts(kernel):
            head = re.split(r"[;}]", self.text[:start])[-1]
            if match := re.search(rf"{name}\s*(?=\()", head):
                return [self.number(part) for part in _split(_in_parentheses(head, match.end()))]
        return []

    def shared(self, name):
        """The SharedArray of that name, or None."""
        pattern = rf"__shared__\s+([^;{{}}()]*?(?:\([^()]*\)[^;{{}}()]*?)?)\b{re.escape(name)}\s*((?:\[[^\]]*\])*)\s*[;,=]"
        for before, dimensions in re.findall(pattern, self.text):
            if item := self._size_of(before):
                shape = [self.number(size) for size in re.findall(r"\[([^\]]*)\]", dimensions)]
                return SharedArray(name, item, None if None in shape else tuple(shape))
        return None

    def dynamic_shared(self):
        """The SharedArray that is `extern __shared__`, or None."""
        match = re.search(r"\bextern\s+__shared__\s[^;]*?(\w+)\s*\[\s*\]", self.text)
        return self.shared(match[1]) if match else None

    def number(self, expression, depth=8):
        """The value of an expression of numbers and constants of the text, or None."""
        try:
            return self._value(ast.parse(expression.strip(), mode="eval").body, depth)
        except (SyntaxError, KeyError, ValueError, ZeroDivisionError):
            return None

    def _value(self, node, depth):
        if isinstance(node, ast.Constant) and isinstance(node.value, int):
            return node.value
        if isinstance(node, ast.Name) and depth:
            tree = ast.parse(self._constants[node.id].strip(), mode="eval")
            return self._value(tree.body, depth - 1)
        if isinstance(node, ast.BinOp):
            left, right = self._value(node.left, depth), self._value(node.right, depth)
            return _OPERATORS[type(node.op)](left, right)
        raise ValueError("no number")

    def _starts(self, kernel):
        """Where the parameters of a __global__ function of that name begin."""
        name = re.escape(kernel.partition("<")[0].rpartition("::")[2])
        for match in re.finditer(rf"\b{name}\s*(?=\()", self.text):
            if "__global__" in re.split(r"[;}]", self.text[: match.start()])[-1]:
                yield match.end()


def indexed_at(line, column):
    """The text of the array whose index ends before a column of a line, counted from 1, or "an
    array".
    """
    depth = 0
    for place in range(min(column - 1, len(line)) - 1, -1, -1):
        depth += {"]": 1, "[": -1}.get(line[place], 0)
        if depth < 0:
            return re.search(r"(?:[\w.]|->|\[\w+\])*$", line[:place].rstrip())[0] or "an array"
    return "an array"


def _in_parentheses(text, start):
    """What stands between the parenthesis at `start` and the one that closes it."""
    depth = 0
    for place in range(start, len(text)):
        depth += {"(": 1, ")": -1}.get(text[place], 0)
        if depth == 0:
            return text[start + 1 : place]
    return ""


def _split(text):
    """The parts of a text between commas that no bracket encloses."""
    parts, depth = [""], 0
    for letter in text:
        depth += {"(": 1, "<": 1, "[": 1, ")": -1, ">": -1, "]": -1}.get(letter, 0)
        if letter == "," and depth == 0:
            parts.append("")
        else:
            parts[-1] += letter
    return parts if text.strip() else []
