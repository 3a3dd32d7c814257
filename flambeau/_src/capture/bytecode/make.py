"""Constructors of instructions that hide what differs between 3.11, 3.12 and 3.13.

Each returns a list, so that code is built by `out += make.load_fast("x")`. The comment behind a
constructor shows the stack before and after, its top at the right.

Calls: `callable_on_top()` turns a callable on top of the stack into what `call` and
`call_function_ex` expect below their arguments; `load_global(name, True)` and `load_method` leave
the stack so already.
"""

from __future__ import annotations

from types import CodeType
from typing import Any

from flambeau._src.capture.bytecode.opcodes import BINARY, COMPARE, VERSION
from flambeau._src.capture.bytecode.program import Instruction

Code = list[Instruction]

_312 = VERSION >= (3, 12)
_313 = VERSION >= (3, 13)
CLOSURE, ANNOTATIONS, KEYWORD_DEFAULTS, DEFAULTS = 8, 4, 2, 1


def _one(name: str, arg: int | None = None, argval: Any = None, flag: Any = None) -> Code:
    return [Instruction(name, arg, arg if argval is None else argval, flag=flag)]


def _plain(name: str) -> Code:
    return [Instruction(name)]


def located(code: Code, where: Any) -> Code:
    """The same list, with every instruction that has no place at `where`."""
    for x in code:
        if x.where is None:
            x.where = where
    return code


# ---- values ----


def load_const(value: Any) -> Code:  # -> value
    """A constant. Any object may be one."""
    return [Instruction("LOAD_CONST", None, value)]


def load_fast(name: str) -> Code:  # -> value
    """A local variable that has a value."""
    return _one("LOAD_FAST", argval=name)


def load_fast_check(name: str) -> Code:  # -> value
    """A local variable; UnboundLocalError if it has none."""
    return _one("LOAD_FAST_CHECK" if _312 else "LOAD_FAST", argval=name)


def store_fast(name: str) -> Code:  # value ->
    """Into a local variable, declared by being named."""
    return _one("STORE_FAST", argval=name)


def delete_fast(name: str) -> Code:  # ->
    """Unbind a local variable."""
    return _one("DELETE_FAST", argval=name)


def load_global(name: str, push_null: bool = False) -> Code:  # -> value, or -> callable for a call
    """A global or builtin; with `push_null` ready to be called."""
    return [Instruction("LOAD_GLOBAL", None, name, flag=push_null)]


def store_global(name: str) -> Code:  # value ->
    """Into a global."""
    return _one("STORE_GLOBAL", argval=name)


def delete_global(name: str) -> Code:  # ->
    """Unbind a global."""
    return _one("DELETE_GLOBAL", argval=name)


def load_name(name: str) -> Code:  # -> value
    """A name of a code object that is no function."""
    return _one("LOAD_NAME", argval=name)


def load_deref(name: str) -> Code:  # -> value
    """The contents of a cell or free variable."""
    return _one("LOAD_DEREF", argval=name)


def store_deref(name: str) -> Code:  # value ->
    """Into a cell or free variable."""
    return _one("STORE_DEREF", argval=name)


def delete_deref(name: str) -> Code:  # ->
    """Empty a cell or free variable."""
    return _one("DELETE_DEREF", argval=name)


def load_closure(name: str) -> Code:  # -> cell
    """The cell itself."""
    return _one("LOAD_CLOSURE", argval=name)


def make_cell(name: str) -> Code:  # ->
    """Turn the slot of a cell variable into a cell (of the argument in it, if any)."""
    return _one("MAKE_CELL", argval=name)


def copy_free_vars(count: int) -> Code:  # ->
    """Put the closure's cells into their slots; the first instruction, if there are any."""
    return _one("COPY_FREE_VARS", count)


def load_attr(name: str) -> Code:  # object -> value
    """An attribute."""
    return [Instruction("LOAD_ATTR", None, name, flag=False if _312 else None)]


def store_attr(name: str) -> Code:  # value object ->
    """Set an attribute."""
    return _one("STORE_ATTR", argval=name)


def delete_attr(name: str) -> Code:  # object ->
    """Delete an attribute."""
    return _one("DELETE_ATTR", argval=name)


def load_subscr() -> Code:  # object key -> value
    """object[key]"""
    return _plain("BINARY_SUBSCR")


def store_subscr() -> Code:  # value object key ->
    """object[key] = value"""
    return _plain("STORE_SUBSCR")


def delete_subscr() -> Code:  # object key ->
    """del object[key]"""
    return _plain("DELETE_SUBSCR")


def import_name(name: str) -> Code:  # level fromlist -> module
    """`__import__` of a module."""
    return _one("IMPORT_NAME", argval=name)


def import_from(name: str) -> Code:  # module -> module value
    """A name of the module on top."""
    return _one("IMPORT_FROM", argval=name)


def import_module(name: str) -> Code:  # -> module
    """The module of a dotted name itself, as `import a.b as x` would bind it."""
    code = load_const(0) + load_const(None) + import_name(name)
    for part in name.split(".")[1:]:
        code += import_from(part) + swap(2) + pop_top()
    return code


# ---- the stack ----


def pop_top() -> Code:  # value ->
    """Drop the top."""
    return _plain("POP_TOP")


def dup() -> Code:  # value -> value value
    """The top once more."""
    return copy(1)


def copy(depth: int) -> Code:  # ... -> ... value
    """The value `depth` from the top (1: the top itself) once more."""
    return _one("COPY", depth)


def swap(depth: int) -> Code:
    """Exchange the top with the value `depth` from the top (2: the next); nothing for 1."""
    return _one("SWAP", depth) if depth > 1 else []


def rot(depth: int) -> Code:  # a b c -> c a b for 3
    """The top goes `depth` - 1 places down; those it passes move up."""
    return [x for d in range(depth, 1, -1) for x in swap(d)]


def null() -> Code:  # -> NULL
    """The NULL that marks a call without self. Where it belongs differs: `callable_on_top`."""
    return _plain("PUSH_NULL")


def nop() -> Code:  # ->
    """Nothing."""
    return _plain("NOP")


# ---- calls ----


def callable_on_top() -> Code:  # callable -> callable for a call
    """Make the value on top ready to be called."""
    return null() if _313 else null() + swap(2)


def as_callable(code: Code) -> Code:  # -> callable for a call
    """`code`, which pushes one value, followed or preceded by the NULL of a call."""
    return code + null() if _313 else null() + code


def load_method(name: str) -> Code:  # object -> callable for a call
    """A method, bound or not: ready to be called."""
    if _312:
        return [Instruction("LOAD_ATTR", None, name, flag=True)]
    return _one("LOAD_METHOD", argval=name)


def call(nargs: int, kwnames: tuple[str, ...] = ()) -> Code:  # callable a1 ... an -> result
    """Call with `nargs` arguments, the last of which are named `kwnames`."""
    if not kwnames:
        return _one("CALL", nargs)
    if _313:
        return load_const(kwnames) + _one("CALL_KW", nargs)
    return [Instruction("KW_NAMES", None, kwnames)] + _one("CALL", nargs)


def call_function_ex(has_kwargs: bool = False) -> Code:  # callable args [kwargs] -> result
    """Call with a tuple, and a dict if `has_kwargs`."""
    return _one("CALL_FUNCTION_EX", int(has_kwargs))


def make_function(flags: int = 0) -> Code:  # [parts] code -> function
    """A function from a code object on top and what `flags` say lies below it, in this order:

    DEFAULTS (a tuple), KEYWORD_DEFAULTS (a dict), ANNOTATIONS (a tuple of names and values),
    CLOSURE (a tuple of cells).
    """
    if not _313:
        return _one("MAKE_FUNCTION", flags)
    code = _plain("MAKE_FUNCTION")
    for flag in (CLOSURE, ANNOTATIONS, KEYWORD_DEFAULTS, DEFAULTS):
        if flags & flag:
            code += _one("SET_FUNCTION_ATTRIBUTE", flag)
    return code


def function(code: CodeType, cells: tuple[str, ...] = ()) -> Code:  # -> function
    """A function of `code` whose free variables are these cells of the running code."""
    if not cells:
        return load_const(code) + make_function()
    out = [x for name in cells for x in load_closure(name)] + build_tuple(len(cells))
    return out + load_const(code) + make_function(CLOSURE)


# ---- operators ----


def binary(text: str) -> Code:  # a b -> result
    """An operator by its text: "+", "@", "+=", ... Raises ValueError for one that is none."""
    if text not in BINARY:
        raise ValueError(f"no binary operator {text!r}")
    return _one("BINARY_OP", argval=text)


def compare(text: str) -> Code:  # a b -> result
    """A comparison by its text: "<", "==", "is", "not in", ..."""
    if text in ("is", "is not"):
        return [Instruction("IS_OP", None, text == "is not")]
    if text in ("in", "not in"):
        return [Instruction("CONTAINS_OP", None, text == "not in")]
    if text not in COMPARE:
        raise ValueError(f"no comparison {text!r}")
    return [Instruction("COMPARE_OP", None, text, flag=False if _313 else None)]


def unary(text: str) -> Code:  # a -> result
    """ "-", "+", "~" or "not"."""
    if text == "+":
        if _312:
            return _one("CALL_INTRINSIC_1", argval="INTRINSIC_UNARY_POSITIVE")
        return _plain("UNARY_POSITIVE")
    if text == "not":
        return to_bool() + _plain("UNARY_NOT")
    return _plain({"-": "UNARY_NEGATIVE", "~": "UNARY_INVERT"}[text])


def to_bool() -> Code:  # a -> a, or its truth (3.13)
    """What 3.13 wants before a conditional jump or `not`; the jumps made here have it."""
    return _plain("TO_BOOL") if _313 else []


# ---- containers ----


def build_tuple(n: int) -> Code:  # v1 ... vn -> tuple
    """A tuple of the n values on top."""
    return _one("BUILD_TUPLE", n)


def build_list(n: int) -> Code:  # v1 ... vn -> list
    """A list of the n values on top."""
    return _one("BUILD_LIST", n)


def build_set(n: int) -> Code:  # v1 ... vn -> set
    """A set of the n values on top."""
    return _one("BUILD_SET", n)


def build_map(n: int) -> Code:  # k1 v1 ... kn vn -> dict
    """A dict of the n pairs on top."""
    return _one("BUILD_MAP", n)


def build_slice(n: int) -> Code:  # start stop [step] -> slice
    """A slice of 2 or 3 values."""
    return _one("BUILD_SLICE", n)


def build_string(n: int) -> Code:  # s1 ... sn -> str
    """n strings joined."""
    return _one("BUILD_STRING", n)


def unpack_sequence(n: int) -> Code:  # sequence -> vn ... v1
    """The n values of a sequence, its first on top."""
    return _one("UNPACK_SEQUENCE", n)


def list_to_tuple() -> Code:  # list -> tuple
    """The list on top as a tuple."""
    if _312:
        return _one("CALL_INTRINSIC_1", argval="INTRINSIC_LIST_TO_TUPLE")
    return _plain("LIST_TO_TUPLE")


def list_append(depth: int) -> Code:  # list ... value -> list ...
    """Append to the list `depth` below what is left when the value is gone (1: right below it)."""
    return _one("LIST_APPEND", depth)


def list_extend(depth: int) -> Code:  # list ... values -> list ...
    """Extend the list, as `list_append` finds it."""
    return _one("LIST_EXTEND", depth)


def dict_update(depth: int) -> Code:  # dict ... mapping -> dict ...
    """Update the dict, as `list_append` finds its list."""
    return _one("DICT_UPDATE", depth)


# ---- control ----


def label() -> Code:
    """A place to jump to: `end = make.label()`, `make.jump(end)`, `out += end`."""
    return nop()


def _goal(target: Instruction | Code) -> Instruction:
    return target[0] if isinstance(target, list) else target


def jump(target: Instruction | Code) -> Code:  # ->
    """Go on at `target`, before or behind."""
    return [Instruction("JUMP_FORWARD", target=_goal(target))]


def pop_jump_if_true(target: Instruction | Code) -> Code:  # value ->
    """Jump if the value on top is true (any object)."""
    return to_bool() + [Instruction("POP_JUMP_IF_TRUE", target=_goal(target))]


def pop_jump_if_false(target: Instruction | Code) -> Code:  # value ->
    """Jump if the value on top is false (any object)."""
    return to_bool() + [Instruction("POP_JUMP_IF_FALSE", target=_goal(target))]


def pop_jump_if_none(target: Instruction | Code) -> Code:  # value ->
    """Jump if the value on top is None."""
    return [Instruction("POP_JUMP_IF_NONE", target=_goal(target))]


def pop_jump_if_not_none(target: Instruction | Code) -> Code:  # value ->
    """Jump if the value on top is not None."""
    return [Instruction("POP_JUMP_IF_NOT_NONE", target=_goal(target))]


def get_iter() -> Code:  # iterable -> iterator
    """iter(value)"""
    return _plain("GET_ITER")


def for_each(body: Code) -> Code:  # iterator -> ; body: iterator value -> iterator
    """Run `body` for each value of the iterator on top, then drop the iterator."""
    top, end = label(), _plain("END_FOR") if _312 else label()
    loop = [Instruction("FOR_ITER", target=end[0])]
    return top + loop + body + jump(top) + end + (pop_top() if _313 else [])


def return_value() -> Code:  # value ->
    """Return the top."""
    return _plain("RETURN_VALUE")


def return_const(value: Any) -> Code:  # ->
    """Return a constant."""
    return load_const(value) + return_value()


def raise_(nargs: int = 1) -> Code:  # [exception [cause]] ->
    """`raise` with 0 (again), 1 (an exception) or 2 (and its cause) values."""
    return _one("RAISE_VARARGS", nargs)


def resume() -> Code:  # ->
    """The mark at which a function begins to run, after its cells are made."""
    return _one("RESUME", 0)


def begin(cellvars: list[str], freevars: list[str]) -> Code:  # ->
    """How a function that is no generator begins: its closure, its cells, `RESUME`."""
    out = copy_free_vars(len(freevars)) if freevars else []
    for name in cellvars:
        out += make_cell(name)
    return out + resume()
