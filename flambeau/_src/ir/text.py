"""Small texts about values: ``f32[2, 3]`` for a tensor, the user's line for a stack trace."""

from __future__ import annotations

from typing import Any, NamedTuple

__all__ = ["ANSI", "StackLine", "colored", "dtype_abbreviation", "stack_line", "tensor_text"]

_ABBREVIATIONS = {
    "bfloat16": "bf16",
    "float64": "f64",
    "float32": "f32",
    "float16": "f16",
    "float8_e4m3fn": "f8e4m3fn",
    "float8_e5m2": "f8e5m2",
    "float8_e4m3fnuz": "f8e4m3fnuz",
    "float8_e5m2fnuz": "f8e5m2fnuz",
    "float8_e8m0fnu": "f8e8m0fnu",
    "complex32": "c32",
    "complex64": "c64",
    "complex128": "c128",
    "int8": "i8",
    "int16": "i16",
    "int32": "i32",
    "int64": "i64",
    "bool": "b8",
    "uint8": "u8",
    "uint16": "u16",
    "uint32": "u32",
    "uint64": "u64",
}

ANSI = {
    "red": "31",
    "green": "32",
    "yellow": "33",
    "blue": "34",
    "dim": "2",
}


class StackLine(NamedTuple):
    """The innermost user line of a stack trace."""

    file: str
    lineno: str
    name: str
    code: str

    def summary(self) -> str:
        """``File: model.py:3 in forward, code: y = x.neg()``, the file without its folders."""
        short = self.file.replace("\\", "/").rpartition("/")[2]
        return f"File: {short}:{self.lineno} in {self.name}, code: {self.code}"


def colored(text: str, *styles: str) -> str:
    """`text` in ANSI styles."""
    codes = "".join(f"\033[{ANSI[style]}m" for style in styles)
    return f"{codes}{text}\033[0m"


def dtype_abbreviation(dtype: Any) -> str:
    """``f32`` for float32."""
    name = str(dtype).rpartition(".")[2]
    return _ABBREVIATIONS.get(name, name)


def tensor_text(
    value: Any, *, stride: bool = False, device: bool = False, color: bool = False
) -> str | None:
    """``f32[2, 3][3, 1]cpu`` for a tensor or its metadata, ``Sym(s0)`` for a symbolic number.

    None for anything else.
    """
    if hasattr(value, "shape") and hasattr(value, "dtype"):
        parts = [dtype_abbreviation(value.dtype), _numbers(value.shape), "", ""]
        if stride:
            strides = value.stride() if callable(value.stride) else value.stride
            parts[2] = _numbers(strides)
        if device and getattr(value, "device", None) is not None:
            parts[3] = str(value.device)
        if color:
            styles = (("red",), ("blue",), ("dim", "blue"), ("dim", "green"))
            return "".join(colored(p, *s) for p, s in zip(parts, styles, strict=True))
        return "".join(parts)
    if type(value).__name__ in ("SymInt", "SymFloat", "SymBool"):
        return f"Sym({value})"
    return None


def _numbers(values: Any) -> str:
    return "[" + ", ".join(map(str, values)) + "]"


def stack_line(trace: str | None) -> StackLine | None:
    """The last frame of a Python stack trace that has a source line."""
    if not trace:
        return None
    lines = trace.strip().split("\n")
    for i in range(len(lines) - 2, -1, -1):
        text = lines[i].strip()
        if not text.startswith('File "'):
            continue
        file, _, rest = text[len('File "') :].partition('", line ')
        lineno, _, name = rest.partition(", in ")
        return StackLine(file, lineno, name, lines[i + 1].strip())
    return None
