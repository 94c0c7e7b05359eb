"""Reads a CUDA C++ file as people have it: finds its kernels, and cuts out what one of them needs.

The preprocessor of g++ runs first, with the headers that there are; missing ones are left out,
because cuda_emulator.h stands for CUDA's. What is left is split into the items of its namespaces
(functions, types, variables). A kernel needs the items whose names it mentions, and what these
mention; functions for the host are never among them.
"""

import bisect
import dataclasses
import pathlib
import re
import subprocess
import tempfile

from . import ptx

# what nvcc defines and headers ask for
_MACROS = {
    "CUDA_EMULATOR": "1",
    "__CUDACC__": "1",
    "__NVCC__": "1",
    "__CUDACC_VER_MAJOR__": "12",
    "__CUDACC_VER_MINOR__": "9",
    "CUDART_VERSION": "12090",
    "CUDA_VERSION": "12090",
    "__CUDA_ARCH__": "900",
}
INCLUDE = re.compile(r'^[ \t]*#[ \t]*include[ \t]*[<"]([^>"\n]+)[>"]', re.MULTILINE)
_TOKEN = re.compile(
    r"""(?P<space>[ \t\r\n\f\v]+)
    | (?P<directive>(?:(?<=\n)|(?<!.))\#[^\n]*)
    | (?P<string>(?:u8|[uUL])?R"(?P<mark>[^(\s]*)\((?s:.*?)\)(?P=mark)"
        | (?:u8|[uUL])?"(?:[^"\\\n]|\\.)*")
    | (?P<character>[uUL]?'(?:[^'\\\n]|\\.)+')
    | (?P<number>\.?\d(?:'(?=\w)|[eEpP][+-]|[\w.])*)
    | (?P<word>[A-Za-z_$]\w*)
    | (?P<sign><<<|<<=|::|->\*?|[<=!]=|&&|\|\||<<|.)""",
    re.VERBOSE,
)
_PAIRS = {"(": ")", "[": "]", "{": "}"}
_OF_DEVICE = {"__device__", "__global__", "constexpr", "consteval"}
_CONSTANT = {"const", "constexpr", "__constant__", "__device__", "__shared__", "__managed__"}
_CONSTANT |= {"__attribute__"}  # hardly of the host
_TYPES = {"struct", "class", "union", "enum"}
# words with parentheses that are no list of parameters
_ATTRIBUTES = {
    "__launch_bounds__",
    "__attribute__",
    "__align__",
    "__cluster_dims__",
    "__maxnreg__",
    "__declspec",
    "alignas",
    "decltype",
    "noexcept",
    "explicit",
    "__block_size__",
}


class SourceError(Exception):
    """A file that cannot be read as CUDA C++; the text says why."""


@dataclasses.dataclass(frozen=True)
class Token:
    kind: str
    text: str
    start: int
    end: int


@dataclasses.dataclass
class Item:
    """A part of a namespace.

    first, last  its tokens
    names        what it declares
    parts        the items of a namespace or of extern "C"
    space        the namespaces around it
    """

    kind: str  # "scope", "function", "type", "variable", "using", "assertion"
    first: int
    last: int
    names: frozenset = frozenset()
    parts: list = dataclasses.field(default_factory=list)
    space: tuple = ()


@dataclasses.dataclass(frozen=True)
class Kernel:
    """A kernel of a file. name: with its namespaces; template: its parameters as text, or None."""

    name: str
    template: str | None
    parameters: tuple  # names; "" where one has none
    file: str
    line: int


class Source:
    """The text of a file behind the preprocessor.

    path: of the file; folders: of headers; macros: a tuple of NAME=VALUE. Raises SourceError.
    """

    def __init__(self, path, folders=(), macros=()):
        self.missing = _missing_headers(path, folders)
        text = preprocessed(path, folders, macros, self.missing)
        self.text = text
        self.tokens = tokens = [
            Token(match.lastgroup, match[0], match.start(), match.end())
            for match in _TOKEN.finditer(text)
            if match.lastgroup != "space"
        ]
        self.pair = _pairs(tokens)
        self.markers = [
            (token.start, int(match[1]), match[2])
            for token in tokens
            if token.kind == "directive"
            and (match := re.match(r'#\s+(?:line\s+)?(\d+)\s+"(.*?)"', token.text))
        ]
        self.items = list(self._split(0, len(tokens), ()))
        self.leaves = list(_leaves(self.items))
        self.kernels = self._kernels()

    # ---- kernels

    def _kernels(self):
        by_name = {}
        for item in self.leaves:
            if item.kind == "function" and "__global__" in self.head(item):
                kernel = self._kernel(item)
                known = by_name.get(kernel.name)
                if known is None or self.tokens[item.last - 1].text == "}":
                    by_name[kernel.name] = kernel
        return list(by_name.values())

    def _kernel(self, item):
        paren = self._parameters_at(item)
        name = self._name_before(paren)
        file, line = self.place(self.tokens[paren].start)
        return Kernel(
            "::".join((*item.space, name)),
            self._template(item),
            tuple(self._declared(a, b) for a, b in self.split_commas(paren + 1, self.pair[paren])),
            file,
            line,
        )

    def launched(self, kernel):
        """The template arguments, as texts, with which the file's host code names a kernel."""
        base = kernel.name.rpartition("::")[2]
        instances = {}
        for item, at, end in self._instantiations(base):
            recursive = item.kind == "function" and "__global__" in self.head(item)
            if recursive and self.tokens[end].text == "(":
                continue
            for arguments in self._resolved(item, self.span(at, end - 1)):
                if not re.search(r"\w\s*(\.|->)\s*[a-z]", arguments):
                    instances[arguments] = None
        return list(instances)

    def _instantiations(self, name):
        """(item, first token of the arguments, token behind the >) of each name<...>."""
        for item in self.leaves:
            for at in range(item.first, item.last - 1):
                if self.tokens[at].text == name and self.tokens[at + 1].text == "<":
                    end = self.angle_end(at + 1, item.last)
                    if end:
                        yield item, at + 2, end

    def declares(self, name):
        return any(name in item.names for item in self.leaves)

    def _resolved(self, item, text, depth=3):
        """Texts of template arguments, with the constants of the function around them and the
        arguments of its own template in place of their names.
        """
        words = {w for w in re.findall(r"[A-Za-z_]\w*", text)}
        for word, value in self._constants(item):
            if word in words:
                text = re.sub(rf"\b{word}\b", f"({value})", text)
        words = set(re.findall(r"[A-Za-z_]\w*", text))
        template = self._template(item)
        names = [declared_name(part) for part in split_text(template)] if template else []
        if not words & set(names):
            return [text]
        if depth == 0:
            return []
        results = {}
        for arguments in self._instances(item, depth - 1):
            given = split_text(arguments)
            if len(given) < len(names):
                given += [default_of(part) or "" for part in split_text(template)[len(given) :]]
            filled = text
            for name, value in zip(names, given, strict=False):
                filled = re.sub(rf"\b{name}\b", value, filled)
            results[filled] = None
        return list(results)

    def _instances(self, function, depth):
        for item, at, end in self._instantiations(next(iter(function.names), "")):
            if item is not function:
                yield from self._resolved(item, self.span(at, end - 1), depth)

    def _constants(self, item):
        """(name, value) of the constants that a function declares in its body, the last first."""
        brace = self._find(self._behind_template(item.first, item.last), item.last, "{;")
        text = self.span(brace, item.last)
        declarations = re.findall(
            r"\b(?:const|constexpr)\s+(?:static\s+)?(?:unsigned\s+|signed\s+|long\s+)*\w+\s+"
            r"(\w+\s*[={][^;]*);",
            text,
        )
        constant = re.compile(r"(\w+)\s*(?:=\s*([^;,{}]+)|\{([^;{}]+)\})\s*(?:,|$)")
        constants = [row for declaration in declarations for row in constant.findall(declaration)]
        constants += [(a, b, "") for a, b in re.findall(r"\busing\s+(\w+)\s*=\s*([^;]+);", text)]
        return [(name, (a or b).strip()) for name, a, b in reversed(constants)]

    # ---- cutting out

    def cut(self, entries):
        """The text that the kernels with these names need, prepared for g++."""
        needed = self._needed({w for entry in entries for w in re.findall(r"[A-Za-z_]\w*", entry)})
        text = "".join(self._emit(self.items, needed, self._prepared))
        return text, self._globals(needed)

    def host_text(self):
        """The text for the host: kernels are declared, and what is of the device alone is left out;
        a launch is a call of host/cuda_runtime.h.
        """
        return "".join(self._emit(self.items, set(map(id, self.leaves)), self._for_host))

    def _for_host(self, item):
        head = self.head(item) if item.kind == "function" else set()
        if "__global__" in head:
            brace = self._find(self._parameters_at(item), item.last, "{;")
            return "" if self._is_instantiation(item) else f"{self.span(item.first, brace)};"
        if "__device__" in head and not head & {"__host__", "constexpr"}:
            return ""
        text, done = "", item.first
        for at in range(item.first, item.last):
            if self.tokens[at].text == "<<<":
                first, last, call = self._launch(item, at)
                text += self.text[self.tokens[done].start : self.tokens[first].start] + call
                done = last
        return prepared(text + self.text[self.tokens[done].start : self.tokens[item.last - 1].end])

    def _launch(self, item, at):
        """(first token, token behind it, the call in its place) of kernel<<<...>>>(...)."""
        first = at - 1
        if self.tokens[first].text == ">":
            openings = (n for n in range(at - 2, item.first, -1) if self.tokens[n].text == "<")
            first = next(n for n in openings if self.angle_end(n, item.last) == at) - 1
        while self.tokens[first - 1].text == "::":
            first -= 2 if self.tokens[first - 2].kind == "word" else 1
        close = at + 1
        while [token.text for token in self.tokens[close : close + 4]] != [*">>>", "("]:
            close = self.pair[close] + 1 if self.tokens[close].text in _PAIRS else close + 1
        end = self.pair[close + 3]
        name = self.span(first, at)
        names = self._resolved(item, name)
        if len(names) != 1:
            file, line = self.place(self.tokens[at].start)
            raise SourceError(
                f"line {line} of {pathlib.Path(file).name} launches {name} in a template, with "
                "other arguments in each of its instances; name the kernel's instance there"
            )
        call = (
            f'emulator_host::Launcher<decltype({name})>::run("{" ".join(names[0].split())}", '
            f"emulator_host::Configuration({self.span(at + 1, close)})"
        )
        given = self.span(close + 4, end)
        return first, end + 1, call + (given and f", {given}") + ")"

    def _needed(self, wanted):
        """The indices of the leaves that these words lead to."""
        by_name = {}
        for number, item in enumerate(self.leaves):
            for name in item.names:
                by_name.setdefault(name, []).append(number)
        needed = {n for n, item in enumerate(self.leaves) if self._always(item)}
        todo = [n for word in wanted for n in by_name.get(word, ())] + sorted(needed)
        seen, needed = set(), set()
        while todo:
            number = todo.pop()
            if number in seen or not self._for_device(self.leaves[number]):
                continue
            seen.add(number)
            needed.add(number)
            for word in self.words(self.leaves[number]):
                if word not in wanted:
                    wanted.add(word)
                    todo += by_name.get(word, ())
        asserted = {
            n
            for n, item in enumerate(self.leaves)
            if item.kind == "assertion" and self._holds(item, by_name, needed)
        }
        return {id(self.leaves[n]) for n in needed | asserted}

    def _holds(self, item, by_name, needed):
        own = [by_name[word] for word in self.words(item) if word in by_name]
        return all(any(n in needed for n in numbers) for numbers in own)

    def _always(self, item):
        return (
            item.kind == "using"
            and not item.names
            or (item.kind == "function" and "operator" in item.names)
        )

    def _for_device(self, item):
        """Whether nvcc would compile it for the GPU."""
        head = self.head(item)
        if item.kind == "function":
            return bool(head & _OF_DEVICE) and not self._is_instantiation(item)
        if item.kind == "variable":
            return bool(head & _CONSTANT)
        return item.kind != "assertion"

    def _is_instantiation(self, item):
        return (
            self.tokens[item.first].text == "template" and self.tokens[item.first + 1].text != "<"
        )

    def _emit(self, items, needed, text_of):
        for item in items:
            if item.kind == "scope":
                inside = "".join(self._emit(item.parts, needed, text_of))
                if inside:
                    head = self.span(item.first, item.parts_first)
                    yield f"{head}\n{inside}\n}}\n"
            elif id(item) in needed:
                file, line = self.place(self.tokens[item.first].start)
                yield f'\n# {line} "{file}"\n{text_of(item)}\n'

    def _prepared(self, item):
        if item.kind == "using":
            return self._using(item)
        return prepared(self.span(item.first, item.last))

    def _using(self, item):
        """Declares the namespaces of missing headers that it names."""
        text = self.span(item.first, item.last)
        match = re.search(r"namespace\s+(?:\w+\s*=\s*)?((?:::)?[\w:\s]+?)\s*;", text)
        spaces = re.findall(r"\w+", match[1]) if match else []
        opening = "".join(f"namespace {space} {{ " for space in spaces)
        inside = item.space and match and not re.match(r"\s*::", match[1])
        return text if inside else f"{opening}{'} ' * len(spaces)}{text}"

    def _globals(self, needed):
        """(name, whether a kernel may write it) of the __device__ and __constant__ variables."""
        return [
            ("::".join((*item.space, name)), "__constant__" not in self.head(item))
            for item in self.leaves
            if id(item) in needed
            and item.kind == "variable"
            and self.head(item) & {"__device__", "__constant__", "__managed__"}
            and "__shared__" not in self.head(item)
            and not self._template(item)
            for name in sorted(item.names)
        ]

    # ---- items

    def _split(self, at, end, space):
        tokens = self.tokens
        while at < end:
            token = tokens[at]
            if token.kind == "directive" or token.text in (";", "}"):
                at += 1
                continue
            item = self._item(at, end, space)
            at = item.last
            yield item

    def _item(self, at, end, space):
        tokens = self.tokens
        text = [token.text for token in tokens[at : at + 3]] + ["", "", ""]
        if "namespace" in text[:2] and text[0] != "using":
            stop = self._find(at, end, "{;")
            if tokens[stop].text == ";":
                return Item("using", at, stop + 1, space=space)
            names = [t.text for t in tokens[at:stop] if t.kind == "word"]
            inner = [name for name in names if name not in ("inline", "namespace")]
            return self._scope(at, stop, (*space, *inner))
        if text[0] == "extern" and tokens[at + 1].kind == "string" and text[2] == "{":
            return self._scope(at, at + 2, space)
        return self._leaf(at, end, space)

    def _scope(self, at, brace, space):
        close = self.pair[brace]
        item = Item("scope", at, close + 1, space=space)
        item.parts = list(self._split(brace + 1, close, space))
        item.parts_first = brace + 1
        return item

    def _leaf(self, at, end, space):
        tokens, begin, word = self.tokens, self._behind_template(at, end), None
        item = Item("variable", at, end, space=space)
        if tokens[begin].text in ("using", "static_assert"):
            item.last = self._find(begin, end, ";") + 1
            item.kind = "using" if tokens[begin].text == "using" else "assertion"
            assigns = "=" in {token.text for token in tokens[begin : item.last]}
            space_too = tokens[begin + 1].text == "namespace"
            if item.kind == "using" and not space_too:
                item.names = frozenset(
                    {tokens[begin + 1].text if assigns else tokens[item.last - 2].text}
                )
            return item
        paren = equals = False
        at = begin
        while at < end:
            text = tokens[at].text
            if text in _TYPES and not paren and word is None:
                word = at
            if text == ";":
                item.last = at + 1
                break
            if text == "=" and "operator" not in (tokens[at - 1].text, tokens[at - 2].text):
                equals = True
            if text == "(" and not equals and tokens[at - 1].text not in _ATTRIBUTES:
                paren = paren or self._may_name(at - 1) or text == "operator"
            if text in _PAIRS:
                body = text == "{" and paren and not equals
                at = self.pair[at]
                if body:
                    item.last = at + 1
                    break
            at += 1
        self._name(item, begin, word, paren, equals)
        return item

    def _may_name(self, at):
        token = self.tokens[at]
        return token.kind == "word" or token.text in ">])" or self.tokens[at - 1].text == "operator"

    def _name(self, item, begin, word, paren, equals):
        texts = [token.text for token in self.tokens[begin : item.last]]
        if texts[0] == "typedef":
            item.kind, item.names = "type", frozenset(self._typedef_names(item))
        elif word is not None and "{" in texts and not (paren and not equals):
            item.kind, item.names = "type", frozenset(self._type_names(item, word))
        elif word is not None and not paren and not equals and len(texts) <= 8 + texts.count("::"):
            item.kind, item.names = "type", frozenset(self._declared_names(begin, item.last))
        elif paren and (not equals or texts[-1] == ";" and self._ends_as_declaration(item)):
            item.kind = "function"
            item.names = self._function_names(item)
        else:
            item.names = frozenset(self._declared_names(begin, item.last))

    def _ends_as_declaration(self, item):
        """`f() = default;`, `= delete;`, or default arguments."""
        return self.tokens[item.last - 2].text in ("default", "delete", "0")

    def _function_names(self, item):
        paren = self._parameters_at(item)
        if paren is None:
            return frozenset()
        name = self._name_before(paren)
        if self.tokens[paren - 2].text == "::":
            return frozenset({name, self.tokens[paren - 3].text})
        return frozenset({name})

    def _parameters_at(self, item):
        """Where the parentheses of a function's parameters open."""
        at = self._behind_template(item.first, item.last)
        while at < item.last:
            text = self.tokens[at].text
            if text == "operator":
                while self.tokens[at].text != "(" or self.tokens[at - 1].text == "operator":
                    at += 1
                return at
            if (
                text == "("
                and self.tokens[at - 1].text not in _ATTRIBUTES
                and self._may_name(at - 1)
            ):
                return at
            at = self.pair[at] + 1 if text in _PAIRS else at + 1
        return None

    def _name_before(self, paren):
        at = paren - 1
        for back in range(paren - 1, max(paren - 4, 0), -1):
            if self.tokens[back].text == "operator":
                return "operator"
        if self.tokens[at].text == ">":
            depth = 0
            while at >= 0:
                depth += {">": 1, "<": -1}.get(self.tokens[at].text, 0)
                at -= 1
                if depth == 0:
                    break
        return self.tokens[at].text

    def _typedef_names(self, item):
        yield from self._declared_names(item.first, item.last)
        for at in range(item.first, item.last):
            if self.tokens[at].text == "(" and self.tokens[at + 1].text == "*":
                yield self.tokens[at + 2].text
        for at in range(item.first, item.last):
            if self.tokens[at].text in _TYPES:
                yield from self._type_names(item, at)
                break

    def _type_names(self, item, word):
        at = word + 1
        while at < item.last and self.tokens[at].text not in ("{", ";", ":"):
            text = self.tokens[at].text
            if text in _PAIRS:
                at = self.pair[at]
            elif text == "<":
                at = (self.angle_end(at, item.last) or at + 1) - 1
            elif self.tokens[at].kind == "word" and text not in _ATTRIBUTES:
                yield text
            at += 1
        brace = self._find(word, item.last, "{;")
        if self.tokens[brace].text == "{":
            if self.tokens[word].text == "enum":
                for inside in range(brace + 1, self.pair[brace]):
                    if self.tokens[inside + 1].text in (",", "=", "}"):
                        yield self.tokens[inside].text
            yield from self._declared_names(self.pair[brace] + 1, item.last)

    def _declared_names(self, at, end):
        """Words before a sign that ends a declarator, outside of brackets."""
        while at < end - 1:
            token, following = self.tokens[at], self.tokens[at + 1].text
            if token.text == "<":  # of a type's template arguments
                at = self.angle_end(at, end) or at + 1
                continue
            if token.kind == "word" and following in (";", ",", "=", "[", "{", ":"):
                yield token.text
            if token.kind == "word" and following == "(":  # dim3 block(8, 8)
                yield token.text
            if token.text == "=":
                while at < end - 1 and self.tokens[at].text not in (",", ";"):
                    at = self.pair[at] + 1 if self.tokens[at].text in _PAIRS else at + 1
                continue
            at = self.pair[at] + 1 if token.text in _PAIRS else at + 1

    def _behind_template(self, at, end):
        while self.tokens[at].text == "template" and self.tokens[at + 1].text == "<":
            at = self.angle_end(at + 1, end) or at + 2
        return min(at, end - 1)

    def _template(self, item):
        """The parameters of an item's template as text, or None."""
        if [token.text for token in self.tokens[item.first : item.first + 2]] != ["template", "<"]:
            return None
        end = self.angle_end(item.first + 1, item.last)
        return self.span(item.first + 2, end - 1) if end else None

    # ---- tokens

    def head(self, item):
        """The words of an item before its parameters, its body or its value."""
        end = self._parameters_at(item) if item.kind == "function" else None
        if end is None:
            begin = self._behind_template(item.first, item.last)
            end = next(
                (n for n in range(begin, item.last) if self.tokens[n].text in "{=;"), item.last
            )
        return {token.text for token in self.tokens[item.first : end] if token.kind == "word"}

    def words(self, item):
        return {t.text for t in self.tokens[item.first : item.last] if t.kind == "word"}

    def span(self, first, last):
        return (
            self.text[self.tokens[first].start : self.tokens[last - 1].end] if last > first else ""
        )

    def place(self, position):
        """File and line of a position in the text."""
        number = bisect.bisect(self.markers, (position + 1,)) - 1
        if number < 0:
            return "", 0
        start, line, file = self.markers[number]
        return file, line + self.text.count("\n", start, position) - 1

    def _find(self, at, end, signs):
        while at < end and self.tokens[at].text not in signs:
            at = self.pair[at] + 1 if self.tokens[at].text in "([" else at + 1
        if at >= end:
            raise SourceError("a declaration has no end")
        return at

    def angle_end(self, at, end):
        """Behind the > that closes the < at `at`; None where it closes nothing."""
        depth = 0
        while at < end:
            text = self.tokens[at].text
            if text in _PAIRS:
                at = self.pair[at]
            elif text in ("<", "<<", "<<<"):
                depth += len(text)
            elif text == ">":
                depth -= 1
            elif text in (";", "{", "}"):
                return None
            at += 1
            if depth == 0:
                return at
        return None

    def split_commas(self, first, last):
        """(first, last) of each part between commas outside of brackets."""
        start, at, angles = first, first, 0
        while at < last:
            text = self.tokens[at].text
            if text == "<":
                angles += 1
            elif text == ">" and angles:
                angles -= 1
            if text == "," and not angles:
                yield start, at
                start = at + 1
            at = self.pair[at] + 1 if text in _PAIRS else at + 1
        if last > start:
            yield start, last

    def _declared(self, first, last):
        return declared_name(self.span(first, last))


def find(kernels, name):
    """The Kernel of a name with or without namespaces and template arguments; None without."""
    base = re.sub(r"\s+", "", name.partition("<")[0]).removeprefix("::")
    exact = [kernel for kernel in kernels if kernel.name == base]
    last = [kernel for kernel in kernels if kernel.name.endswith(f"::{base}")]
    return next(iter(exact or last), None)


def declared_name(text):
    """The name that a parameter declares: `const float *__restrict__ x = 0` declares x."""
    text = re.sub(r"=.*", "", text, flags=re.DOTALL)
    text = re.sub(r"\[[^\]]*\]", " ", text)
    words = re.findall(r"[A-Za-z_]\w*", text)
    return words[-1] if len(words) > 1 else ""


def default_of(text):
    """The default of a parameter, "" without."""
    return text.partition("=")[2].strip()


def split_text(text):
    """The parts of a text between commas outside of brackets; < is no bracket in parentheses."""
    parts, depth, angles, part = [], 0, 0, ""
    for character in text or "":
        depth += {"(": 1, "[": 1, "{": 1, ")": -1, "]": -1, "}": -1}.get(character, 0)
        if not depth:
            angles += {"<": 1, ">": -1}.get(character, 0)
        if character == "," and not depth and not angles:
            parts.append(part.strip())
            part = ""
        else:
            part += character
    return [*parts, part.strip()] if part.strip() else parts


def _leaves(items):
    for item in items:
        if item.kind == "scope":
            yield from _leaves(item.parts)
        else:
            yield item


def _pairs(tokens):
    """{number of a bracket: number of its partner}, both ways."""
    pair, open_ = {}, []
    for number, token in enumerate(tokens):
        if token.text in _PAIRS and token.kind == "sign":
            open_.append(number)
        elif token.kind == "sign" and token.text in ")]}":
            if not open_ or _PAIRS[tokens[open_[-1]].text] != token.text:
                raise SourceError(f"a {token.text} closes nothing")
            pair[open_[-1]] = number
            pair[number] = open_.pop()
    if open_:
        raise SourceError(f"a {tokens[open_[-1]].text} is never closed")
    return pair


# ---- preprocessor


def preprocessed(path, folders, macros, missing):
    """What the preprocessor makes of a file; missing: names of headers that are empty."""
    names = {macro.partition("=")[0] for macro in macros}
    defined = [f"{name}={value}" for name, value in _MACROS.items() if name not in names]
    with tempfile.TemporaryDirectory() as folder:
        deep = pathlib.Path(folder, "a/b/c/d/e/f")  # for "../.."
        deep.mkdir(parents=True)
        for name in missing:
            stand_in = pathlib.Path(folder, *_resolved_parts(deep.relative_to(folder), name))
            stand_in.parent.mkdir(parents=True, exist_ok=True)
            if not stand_in.is_dir():
                stand_in.write_text("", "utf-8")
        # In a file: a macro with a table is longer than an argument may be.
        defines = pathlib.Path(folder, "macros.h")
        lines = (
            macro.replace("=", " ", 1) if "=" in macro else f"{macro} 1"
            for macro in (*defined, *macros)
        )
        defines.write_text("".join(f"#define {line}\n" for line in lines), "utf-8")
        command = ["g++", "-E", "-x", "c++", "-std=gnu++17", "-nostdinc", "-nostdinc++", "-w"]
        command += ["-imacros", str(defines)]
        command += [f"-I{place}" for place in (*folders, deep)]
        run = subprocess.run([*command, str(path)], capture_output=True, check=False)
    if run.returncode:
        raise SourceError(run.stderr.decode(errors="replace"))
    return run.stdout.decode(errors="replace")


def _resolved_parts(deep, name):
    parts = [] if name.startswith("/") else list(deep.parts)
    for part in pathlib.PurePosixPath(name.lstrip("/")).parts:
        if part == "..":
            del parts[-1:]
        else:
            parts.append(part)
    return parts


def _missing_headers(path, folders):
    """The names that a file and its headers include and that are in none of the folders."""
    missing, seen, todo = set(), set(), [pathlib.Path(path)]
    while todo:
        file = todo.pop()
        if file in seen:
            continue
        seen.add(file)
        for name in INCLUDE.findall(file.read_text("utf-8", "replace")):
            headers = [
                (place / name).resolve()
                for place in (file.parent, *folders)
                if (place / name).is_file()
            ]
            todo += headers[:1]
            if not headers:
                missing.add(name)
    return missing


# ---- text for g++

_ALIGNED = r"(?:alignas|__align__|__attribute__)\s*\((?:[^()]|\((?:[^()]|\([^()]*\))*\))*\)"
# a declaration with both words, in any order
_DYNAMIC = re.compile(
    r"\b(?:(?:volatile|const)\s+)*(?:extern|__shared__)\b(?=[^;{}=]*\b(?:extern|__shared__)\b)[^;{}=]*;"
)


def prepared(text):
    """The text of an item as g++ can read it."""
    text = _DYNAMIC.sub(_dynamic_shared, text) if "__shared__" in text else text
    if "__shared__" in text:
        text = re.sub(r"\bstatic\s+((?:\w+\s+)?)__shared__", r"\1__shared__", text)
        text = re.sub(r"__shared__\s+((?:\w+\s+)?)static\b", r"__shared__ \1", text)
        text = re.sub(r"__shared__\s+(alignas\s*\((?:[^()]|\([^()]*\))*\))", r"\1 __shared__", text)
    text = re.sub(
        r"\b(?:__inline__|__inline|inline)\s+(?=(?:static\s+|constexpr\s+|__device__\s+"
        r"|__host__\s+)*__forceinline__\b)",
        "",
        text,
    )
    text = re.sub(
        r"(\b__forceinline__\s+(?:static\s+|constexpr\s+|__device__\s+|__host__\s+)*)"
        r"(?:__inline__|__inline|inline)\b",
        r"\1",
        text,
    )
    text = re.sub(r"\b__noinline__\b", "__attribute__((noinline))", text)
    text = re.sub(r"\b__grid_constant__\b", "", text)
    return ptx.rewritten(text) if "asm" in text else text


def _dynamic_shared(match):
    """A reference to the launch's shared memory in place of an array without a size."""
    text = re.sub(rf"{_ALIGNED}|\b(?:extern|__shared__)\b", " ", match[0])
    kind, name, sizes = re.fullmatch(
        r"(.*?)(\w+)\s*((?:\[[^\]]*\]\s*)*);", text.strip(), re.S
    ).groups()
    kind = " ".join(kind.split())
    lines = "\n" * match[0].count("\n")
    return (
        f"{kind} (&{name}){sizes} = "
        f"*reinterpret_cast<{kind} (*){sizes}>(emulator::dynamic_shared());{lines}"
    )
