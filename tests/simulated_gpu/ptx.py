"""The PTX that nvcc writes for kernels.cu, from which a GPU's machine code is made, translated to C++ that does what it
says, thread by thread. An instruction that is not known here is an error, and so is arithmetic that may be contracted.
Every access to the GPU's memory is checked for its bounds and its alignment."""

import ctypes
import functools
import itertools
import re
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

from simulated_gpu import kernels

NVCC = shutil.which("nvcc")
_TYPES = {
    **{f"{kind}{bits}": f"uint{bits}_t" for kind in "bu" for bits in (8, 16, 32, 64)},
    **{f"s{bits}": f"int{bits}_t" for bits in (8, 16, 32, 64)},
    **{"f32": "float", "f64": "double", "f16": "Half", "pred": "bool"},
}
_SIZES = {name: int(name[1:]) // 8 for name in _TYPES if name != "pred"}
_INFIX = {"add": "+", "sub": "-", "mul": "*", "div": "/", "and": "&", "or": "|", "xor": "^"}
_COMPARE = {"eq": "==", "ne": "!=", "lt": "<", "le": "<=", "gt": ">", "ge": ">="}
_OPPOSITE = {"ltu": ">=", "leu": ">", "gtu": "<=", "geu": "<", "neu": "=="}  # true also if either is NaN
_INDICES = {f"%{name}.{'xyz'[i]}": f"t.{name}[{i}]" for name in ("ctaid", "ntid", "nctaid", "tid") for i in range(3)}


@functools.cache
def library(source: Path = kernels.NATIVE / "kernels.cu"):
    """The kernels as a library, with the functions of host/kernels.cpp, and `instructions`."""
    flags = "-std=c++17", "-ptx", "-arch=compute_75", f"-I{kernels.NATIVE}"
    ptx, _ = kernels.made_by(NVCC, *flags, source=source, name="kernels.ptx")
    with tempfile.TemporaryDirectory() as folder:
        translated = Path(folder) / "kernels.cpp"
        translated.write_text(translate(ptx.read_text()))
        found = kernels.compiled(translated, "-O1", "-mf16c", "-mfma", "-Wno-unused")
    found.launch.restype, found.instructions.restype = ctypes.c_size_t, ctypes.c_uint64
    return found


def translate(ptx: str) -> str:
    ptx = re.sub(r"//.*", "", ptx)
    form = r"\.(entry|func)\s*(?:\(\.param \.\w+ (\w+)\))?\s*(\w+)\s*\(([^)]*)\)([^{;]*)([{;])"
    functions = [(match, _parameters(match[4])) for match in re.finditer(form, ptx)]
    layouts = {match[3]: layout for match, layout in functions}
    out = ['#include "ptx.h"']
    out += [f"static void {match[3]}(const char* params, char* result, const Thread& t);" for match, _ in functions]
    statements = itertools.count()
    bodies = {m[3]: ptx[m.end() : ptx.index("\n}", m.end())] for m, _ in functions if m[6] == "{"}
    made = [_function(m[3], m[2], bodies[m[3]], layouts, statements) for m, _ in functions if m[6] == "{"]
    out += [f"constexpr int statements = {next(statements)};", "static Counter<statements> executed;", *made]
    out.append("static const Kernel table[] = {")
    for match, layout in functions:
        if match[1] == "entry":
            by_warps = "true" if "shfl." in bodies[match[3]] else "false"
            out.append(f'  {{"{match[3]}", {match[3]}, {layout[None]}, {by_warps}}},')
    return "\n".join([*out, "};", '#include "ptx_launch.h"', ""])


def _parameters(text: str) -> dict[str | None, int]:
    """Where each parameter starts; None is where the last one ends."""
    layout, end = {}, 0
    for aligned, kind, name, length in re.findall(r"\.param (?:\.align (\d+) )?\.(\w+) (\w+)(?:\[(\d+)\])?", text):
        size = int(aligned or _SIZES[kind])
        layout[name] = end = -(-end // size) * size
        end += int(length or _SIZES[kind])
    return {**layout, None: end}


def _function(
    name: str, result: str | None, body: str, layouts: dict[str, dict[str | None, int]], statements: Iterator[int]
) -> str:
    lines, at = [], 0
    for piece in re.finditer(r"\s*(?:([{}])|(\$\w+):|([^;]*);)", body):
        assert piece.start() == at, body[at : at + 80]
        at, (brace, label, statement) = piece.end(), piece.groups()
        if brace:
            lines.append(brace)
        elif label:
            lines.append(f"{label.replace('$', 'S')}:;")
        else:
            guard = re.match(r"@(!?)%(p\d+)\s+", statement)
            made = _Statement(statement[guard.end() :] if guard else statement, layouts[name], result, layouts).made()
            if not statement.lstrip().startswith("."):  # a declaration is no instruction
                lines.append(f"executed.add({next(statements)});")
            lines.append(f"if ({guard[1]}{guard[2]}) {{ {made} }}" if guard else made)
    assert not body[at:].strip(), body[at:]
    return f"static void {name}(const char* params, char* result, const Thread& t) {{\n" + "\n".join(lines) + "\n}\n"


class _Statement:
    def __init__(self, text: str, params: dict[str | None, int], result: str | None, layouts: dict) -> None:
        self.text, self.params, self.result, self.layouts = " ".join(text.split()), params, result, layouts
        head, _, rest = self.text.partition(" ")
        self.op, *self.suffix = head.lstrip(".").split(".")
        self.kind = self.suffix[-1] if self.suffix else ""
        self.args = [part.strip() for part in re.findall(r"(?:\{[^}]*\}|\[[^\]]*\]|\([^)]*\)|[^,])+", rest)]

    def unknown(self) -> AssertionError:
        return AssertionError(f"the translator does not know {self.text!r}")

    def read(self, index: int, kind: str | None = None) -> str:
        return self.value(self.args[index], kind or self.kind)

    def value(self, text: str, kind: str) -> str:
        if text in _INDICES:
            return f"as<{_TYPES[kind]}>({_INDICES[text]})"
        if text.startswith("%"):
            return f"as<{_TYPES[kind]}>({text[1:]})"
        if re.fullmatch("0[fFdD][0-9A-F]+", text):
            bits = {"f": "uint32_t", "d": "uint64_t"}[text[1].lower()]
            return f"as<{_TYPES[kind]}>({bits}(0x{text[2:]}ull))"
        if re.fullmatch("-?[0-9]+", text):
            return f"({_TYPES[kind]})0x{int(text) % 2**64:x}ull"
        raise self.unknown()

    def write(self, value: str, kind: str | None = None) -> str:
        return f"put<{_TYPES[kind or self.kind]}>({self.args[0][1:]}, {value});"

    def place(self, text: str) -> tuple[str, str]:
        """The address in brackets: what it starts from, and the offset."""
        match = re.fullmatch(r"\[([%\w]+)(?:\+(-?\d+))?\]", text)
        return match[1], match[2] or "0"

    def made(self) -> str:
        made = getattr(self, f"make_{self.op}", None)
        if made is None:
            made = self.make_arithmetic
        return made()

    # Declarations and control.
    def make_reg(self) -> str:
        kind, prefix, number = re.fullmatch(r"\.reg \.(\w+) (%?\w+?)(?:<(\d+)>)?", self.text).groups()
        if number is None:
            return ""  # nvcc declares such a register for calls, and does not use it
        return f"{_TYPES[kind]} " + ", ".join(f"{prefix[1:]}{i} = 0" for i in range(int(number))) + ";"

    def make_param(self) -> str:
        kind, name, length = re.fullmatch(r"\.param (?:\.align \d+ )?\.(\w+) (\w+)(?:\[(\d+)\])?", self.text).groups()
        return f"alignas(8) char {name}[{length or _SIZES[kind]}];"

    def make_pragma(self) -> str:
        return ""

    def make_call(self) -> str:
        (returned,), callee, given = re.findall(r"\w+", self.args[0]), self.args[1], re.findall(r"\w+", self.args[2])
        layout = list(self.layouts[callee].values())
        size, starts = layout[-1], layout[:-1]
        copies = [f"memcpy(given + {at}, {name}, sizeof {name});" for at, name in zip(starts, given, strict=True)]
        return f"{{ char given[{size}]; {' '.join(copies)} {callee}(given, {returned}, t); if (fault) return; }}"

    def make_bra(self) -> str:
        return f"goto {self.args[0].replace('$', 'S')};"

    def make_ret(self) -> str:
        return "return;"

    def make_trap(self) -> str:
        return "fault = 715; return;"

    # Memory.
    def make_ld(self) -> str:
        return self._move(self.args[1], self.args[0], "get")

    def make_st(self) -> str:
        return self._move(self.args[0], self.args[1], "set")

    def _move(self, where: str, registers: str, how: str) -> str:
        space, (start, offset) = self.suffix[0], self.place(where)
        names, size = re.findall(r"[%\w-]+", registers), _SIZES[self.kind]
        if space == "global":
            begin = f"char* at = reach({start[1:]} + {offset}ll, {size * len(names)}); if (!at) return;"
        elif space == "param" and start in self.params:
            begin = f"const char* at = params + {self.params[start]} + {offset};"
        elif space == "param":
            begin = f"char* at = {'result' if start == self.result else start} + {offset};"
        else:
            raise self.unknown()
        kind = _TYPES[self.kind]
        if how == "get":
            steps = [f"put<{kind}>({name[1:]}, load<{kind}>(at + {i * size}));" for i, name in enumerate(names)]
        else:
            steps = [f"store<{kind}>(at + {i * size}, {self.value(name, self.kind)});" for i, name in enumerate(names)]
        return f"{{ {begin} {' '.join(steps)} }}"

    def make_atom(self) -> str:
        if self.suffix != ["global", "add", "u32"]:
            raise self.unknown()
        start, offset = self.place(self.args[1])
        begin = f"char* at = reach({start[1:]} + {offset}ll, 4); if (!at) return;"
        add = f"{self.write('load<uint32_t>(at)')} store<uint32_t>(at, load<uint32_t>(at) + {self.read(2)});"
        return f"{{ {begin} {add} }}"

    def make_shfl(self) -> str:
        """Every thread of the warp gives a value, and takes that of the thread whose number differs in some bits."""
        to, valid = self.args[0].split("|")
        if self.suffix != ["sync", "bfly", "b32"] or not valid.startswith("%p"):
            raise self.unknown()
        whole = f"{self.read(3, 'u32')} == 31 && {self.read(4, 'u32')} == ~0u"  # all threads of a warp take part
        self.args[0] = to
        exchange = self.write(f"Warp::exchange({self.read(1)}, {self.read(2, 's32')})")
        return f"{{ if (!({whole})) {{ fault = 719; return; }} {exchange} }}"

    def make_cvta(self) -> str:
        return self.write(self.read(1))

    # Arithmetic.
    def make_mov(self) -> str:
        return self.write(self.read(1))

    def make_setp(self) -> str:
        comparison, kind = self.suffix
        a, b = self.read(1, kind), self.read(2, kind)
        if comparison in _OPPOSITE and kind[0] == "f":
            return self.write(f"!({a} {_OPPOSITE[comparison]} {b})", "pred")
        if comparison == "ne" and kind[0] == "f":  # false if either is NaN
            return self.write(f"{a} < {b} || {a} > {b}", "pred")
        return self.write(f"{a} {_COMPARE[comparison]} {b}", "pred")

    def make_selp(self) -> str:
        return self.write(f"{self.args[3][1:]} ? {self.read(1)} : {self.read(2)}")

    def make_cvt(self) -> str:
        *how, to, source = self.suffix
        exact = to[0] != "f" or (source[0] == "f" and _SIZES[source] <= _SIZES[to])
        if (to[0] != "f" and source[0] == "f") or how != ([] if exact else ["rn"]):
            raise self.unknown()
        return self.write(f"convert<{_TYPES[to]}>({self.read(1, source)})", to)

    def make_bfi(self) -> str:
        position, length = map(int, self.args[3:])
        mask = ((1 << length) - 1) << position
        return self.write(f"({self.read(2)} & ~{mask}ull) | (({self.read(1)} << {position}) & {mask}ull)")

    def make_arithmetic(self) -> str:
        op, how, kind = self.op, self.suffix[:-1], self.kind
        if kind in ("f32", "f64"):
            if op in ("neg", "abs") and not how:
                return self.write(f"-{self.read(1)}" if op == "neg" else f"__builtin_fabs({self.read(1)})")
            if how != ["rn"]:  # without it, a GPU's compiler may contract it, or round it otherwise
                raise self.unknown()
            short = "f" if kind == "f32" else ""
            if op == "fma":
                return self.write(f"__builtin_fma{short}({self.read(1)}, {self.read(2)}, {self.read(3)})")
            if op == "sqrt":
                return self.write(f"__builtin_sqrt{short}({self.read(1)})")
            if op == "rcp":
                return self.write(f"1 / {self.read(1)}")
            if op in ("add", "sub", "mul", "div"):
                return self.write(f"{self.read(1)} {_INFIX[op]} {self.read(2)}")
            raise self.unknown()
        plain = kind.replace("s", "u")  # sums and products wrap around
        if op in ("add", "sub", "and", "or", "xor") and not how:
            return self.write(f"{self.read(1, plain)} {_INFIX[op]} {self.read(2, plain)}", plain)
        if op in ("mul", "mad") and how == ["lo"]:
            more = f" + {self.read(3, plain)}" if op == "mad" else ""
            return self.write(f"{self.read(1, plain)} * {self.read(2, plain)}{more}", plain)
        if op in ("mul", "mad") and how == ["wide"] and _SIZES[kind] == 4:
            wide = kind.replace("32", "64")
            more = f" + {self.read(3, wide)}" if op == "mad" else ""
            return self.write(f"({_TYPES[wide]}){self.read(1)} * {self.read(2)}{more}", wide)
        if op == "mul" and how == ["hi"] and kind == "u32":
            return self.write(f"(uint32_t)((uint64_t){self.read(1)} * {self.read(2)} >> 32)")
        if op == "neg" and not how:
            return self.write(f"0 - {self.read(1, plain)}", plain)
        if op == "not" and not how:
            return self.write(f"!{self.read(1)}" if kind == "pred" else f"~{self.read(1)}")
        if op in ("shl", "shr") and not how and re.fullmatch(r"\d+", self.args[2]):
            assert int(self.args[2]) < 8 * _SIZES[kind]
            return self.write(f"{self.read(1)} {'<<' if op == 'shl' else '>>'} {self.args[2]}")
        raise self.unknown()
