"""Bytecode taken apart and put together again: over the standard library, and run."""

from __future__ import annotations

import ast
import asyncio
import dis
import os
import sys
import types
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from flambeau._src.capture.bytecode import (
    ExceptionEntry,
    Instruction,
    Positions,
    Program,
    assemble,
    decode,
    depths,
    make,
)
from flambeau._src.capture.bytecode.tables import read_exceptions, write_exceptions
from tests.capture import bytecode_programs as programs

LIBRARY = Path(os.__file__).parent
QUICK = ("asyncio", "collections", "contextlib.py", "dataclasses.py", "enum.py", "functools.py")


def codes_of(code: types.CodeType) -> Iterator[types.CodeType]:
    yield code
    for value in code.co_consts:
        if isinstance(value, types.CodeType):
            yield from codes_of(value)


def sources(part: str) -> list[Path]:
    root = LIBRARY / part if part else LIBRARY
    found = [root] if root.is_file() else sorted(root.rglob("*.py"))
    return [p for p in found if "site-packages" not in p.parts]


def check_same(code: types.CodeType, smaller: list[bool]) -> None:
    again = assemble(decode(code))
    where = f"{code.co_filename}:{code.co_firstlineno} {code.co_qualname}"
    if len(again.co_code) < len(code.co_code):
        # The compiler may leave a jump wider than it must be (4 functions of 3.13's library).
        assert sys.version_info >= (3, 13) and len(code.co_code) - len(again.co_code) < 8, where
        assert str(decode(again)) == str(decode(code)), where
        return
    assert again.co_code == code.co_code, where
    assert again.co_exceptiontable == code.co_exceptiontable, where
    assert list(again.co_positions()) == list(code.co_positions()), where
    assert list(again.co_lines()) == list(code.co_lines()), where
    # The compiler may count code that it drops afterwards (some `except*`): ours is then less.
    assert again.co_stacksize <= max(code.co_stacksize, 1), where
    smaller.append(again.co_stacksize < code.co_stacksize)
    for name in dir(code):
        if name.startswith("co_") and name not in NOT_COMPARED:
            assert getattr(again, name) == getattr(code, name), f"{where}: {name}"


NOT_COMPARED = {"co_linetable", "co_stacksize", "co_lines", "co_positions", "co_lnotab",
                "co_code", "co_branches"}  # fmt: skip


@pytest.mark.parametrize("part", QUICK)
def test_the_standard_library_comes_back(part: str) -> None:
    smaller: list[bool] = []
    for path in sources(part):
        for code in codes_of(compile(path.read_bytes(), str(path), "exec")):
            check_same(code, smaller)
    assert len(smaller) > 20 and not any(smaller)


@pytest.mark.slow
def test_all_of_the_standard_library_comes_back() -> None:
    smaller: list[bool] = []
    for path in sources(""):
        try:
            with warnings.catch_warnings(action="ignore"):
                top = compile(path.read_bytes(), str(path), "exec")
        except (SyntaxError, ValueError):  # files of the tests that are wrong on purpose
            continue
        for code in codes_of(top):
            check_same(code, smaller)
    assert len(smaller) > 50_000 and sum(smaller) < 1e-3 * len(smaller)


# ---- what comes back runs ----


def rebuilt(function: Any, change: Callable[[Program], None] = lambda p: None) -> Any:
    """The function with every code object in it taken apart, changed and put together."""

    def again(code: types.CodeType) -> types.CodeType:
        program = decode(code)
        for x in program.instructions:
            if x.opname == "LOAD_CONST" and isinstance(x.argval, types.CodeType):
                x.argval = again(x.argval)
        program.consts = program.consts[:1]  # indices change
        program.names = []
        change(program)
        return assemble(program)

    made = types.FunctionType(
        again(function.__code__), function.__globals__, function.__name__, function.__defaults__,
        function.__closure__,
    )  # fmt: skip
    made.__kwdefaults__ = function.__kwdefaults__
    return made


def spread(program: Program) -> None:
    """Enough between any two instructions that jumps and entries need wider numbers."""
    out: list[Instruction] = []
    for x in program.instructions:
        out.append(x)
        if x.opname not in ("YIELD_VALUE", "END_FOR", "KW_NAMES"):  # their followers belong to them
            out += [n for _ in range(40) for n in make.nop()]
    program.instructions = out


def backward(program: Program) -> None:
    """Blocks in another order: the first half of the code moves behind the second."""
    code = program.instructions
    before = depths(program)
    half = next((i for i, x in enumerate(code) if i > len(code) // 2 and before.get(x) == 0), None)
    if half is None:
        return
    ranges = [(code.index(e.start), code.index(e.end)) for e in program.exceptions]
    if any(a < half <= b for a, b in ranges):
        return
    forward_only = {"FOR_ITER", "SEND", "JUMP_IF_FALSE_OR_POP", "JUMP_IF_TRUE_OR_POP"}
    for i, x in enumerate(code):
        if x.opname in forward_only and (i < half) != (code.index(x.target) < half):
            return
    first, second = code[:half], code[half:]
    if first[-1].opname not in ("RETURN_VALUE", "RAISE_VARARGS", "JUMP_FORWARD", "JUMP_BACKWARD"):
        first += make.jump(second[0])
    start = next(i for i, x in enumerate(first) if x.opname == "RESUME") + 1
    if first[start].opname == "POP_TOP":
        start += 1
    rest = first[start:]
    if any(code.index(e.start) < start for e in program.exceptions) or not rest:
        return
    program.instructions = first[:start] + make.jump(rest[0]) + second + rest


def result_of(function: Any, *args: Any) -> Any:
    """The value or the exception, with the lines of its traceback."""
    try:
        out = function(*args)
        if isinstance(out, types.CoroutineType):
            out = asyncio.run(out)
        elif isinstance(out, types.GeneratorType):
            out = list(out)
        return out
    except Exception as e:
        lines = []
        trace = e.__traceback__
        while trace is not None:
            lines.append(trace.tb_lineno)
            trace = trace.tb_next
        return type(e), str(e), lines[1:]


@pytest.mark.parametrize("change", [lambda p: None, spread, backward], ids=["same", "wide", "back"])
@pytest.mark.parametrize("name", [n for n in vars(programs) if n.startswith("run_")])
def test_programs_run_alike(name: str, change: Any) -> None:
    function = getattr(programs, name)
    for args in getattr(function, "calls", [()]):
        assert result_of(rebuilt(function, change), *args) == result_of(function, *args), args


def test_programs_cover_the_instructions() -> None:
    """Nearly every instruction that a function can contain is in the programs that run."""
    seen: set[str] = set()
    for name, function in vars(programs).items():
        if name.startswith("run_"):
            for code in codes_of(function.__code__):
                seen |= {dis.opname[b] for b in code.co_code[::2]}
    wanted = {"FOR_ITER", "SEND", "MAKE_CELL", "LOAD_DEREF", "COPY_FREE_VARS", "BEFORE_WITH",
              "BEFORE_ASYNC_WITH", "GET_ANEXT", "MATCH_CLASS", "MATCH_KEYS", "CHECK_EG_MATCH",
              "WITH_EXCEPT_START", "YIELD_VALUE", "UNPACK_EX", "DICT_MERGE", "CALL_FUNCTION_EX",
              "BUILD_STRING", "IMPORT_FROM", "DELETE_SUBSCR", "STORE_ATTR", "RERAISE"}  # fmt: skip
    assert wanted <= seen, wanted - seen


# ---- the parts ----


def test_meanings_are_the_same_in_every_version() -> None:
    def f(a: Any, b: Any) -> Any:
        if a < b and a is not b:
            return a.method(b, key=1) + len(a)
        return not a

    program = decode(f.__code__)
    by_name: dict[str, Instruction] = {}
    for x in program.instructions:
        by_name.setdefault(x.opname, x)
    assert "PRECALL" not in by_name and not [n for n in by_name if "LOAD_FAST_LOAD" in n]
    assert by_name["COMPARE_OP"].argval == "<"
    assert by_name["IS_OP"].argval is True
    assert by_name["BINARY_OP"].argval == "+"
    assert by_name["LOAD_GLOBAL"].argval == "len" and by_name["LOAD_GLOBAL"].flag is True
    jump = by_name["POP_JUMP_IF_FALSE"]
    assert jump.target in program.instructions
    where = by_name["COMPARE_OP"].where
    assert where is not None and where.line == f.__code__.co_firstlineno + 1
    assert str(program).count("\n") >= len(program.instructions) - 1


def test_specialised_code_is_decoded_as_it_was_compiled() -> None:
    def f(n: int) -> int:
        total = 0
        for i in range(n):
            total += i
        return total

    before = [repr(x) for x in decode(f.__code__).instructions]
    for _ in range(100):
        f(100)
    assert [repr(x) for x in decode(f.__code__).instructions] == before


def test_tables_of_exceptions_come_back() -> None:
    entries = [(0, 1, 2, 0, False), (63, 64, 65, 1, True), (64, 4096, 5000, 70, False),
               (1 << 18, (1 << 18) + 70, 1 << 19, 2, True)]  # fmt: skip
    assert list(read_exceptions(write_exceptions(entries))) == entries


def test_a_deep_stack_is_measured() -> None:
    program = Program([], argcount=0, flags=3)
    body = make.begin([], [])
    for i in range(300):
        body += make.load_const(i)
    body += make.build_tuple(300) + make.return_value()
    program.instructions = body
    code = assemble(program)
    assert code.co_stacksize == 300
    assert types.FunctionType(code, {})() == tuple(range(300))


def test_what_has_no_encoding_is_refused() -> None:
    program = Program(make.begin([], []) + make.pop_top() + make.return_const(None), flags=3)
    with pytest.raises(ValueError, match="empty stack"):
        assemble(program)
    program.instructions = make.begin([], []) + make.jump(make.label())
    with pytest.raises(ValueError, match="jumps out"):
        assemble(program)
    program.instructions = make.begin([], [])
    with pytest.raises(ValueError, match="runs into nothing"):
        assemble(program)
    program.instructions = make.begin([], []) + make.load_deref("x") + make.return_value()
    with pytest.raises(ValueError, match="no cell"):
        assemble(program)
    a, b = make.label(), make.label()
    program.instructions = (
        make.begin([], []) + make.load_const(1) + make.pop_jump_if_true(a) + make.load_const(1)
        + a + b + make.return_const(None)
    )  # fmt: skip
    with pytest.raises(ValueError, match="depths"):
        assemble(program)
    program.instructions = make.begin([], []) + make.load_const(1) + [Instruction("YIELD_VALUE")]
    with pytest.raises(ValueError, match="RESUME"):
        assemble(program)


# ---- the constructors ----


def function_of(
    body: list[Instruction], args: str = "", globals_: dict[str, Any] | None = None, **fields: Any
) -> Any:
    names = args.split()
    program = Program(
        make.begin(fields.get("cellvars", []), []) + body,
        varnames=names, argcount=len(names), flags=3, filename=__file__, **fields,
    )  # fmt: skip
    return types.FunctionType(assemble(program), globals_ if globals_ is not None else globals())


def test_constants_are_told_apart() -> None:
    values = (1, 1.0, True, -0.0, 0.0, (1, 2), (1.0, 2), "1", b"1", None, ..., 1j, [], float("nan"))
    body = [x for v in values for x in make.load_const(v)]
    out = function_of(body + make.build_tuple(len(values)) + make.return_value())()
    assert [type(v) for v in out] == [type(v) for v in values]
    assert repr(out) == repr(values)
    assert out[12] is values[12]


def test_calls() -> None:
    def target(*args: Any, **kwargs: Any) -> Any:
        return args, kwargs

    scope = {"target": target}
    f = function_of(
        make.load_global("target", True) + make.load_fast("a") + make.load_const(2)
        + make.call(2, ("key",)) + make.return_value(), "a", scope,
    )  # fmt: skip
    assert f(1) == ((1,), {"key": 2})
    f = function_of(
        make.load_fast("f") + make.callable_on_top() + make.load_const(2) + make.call(1)
        + make.return_value(), "f",
    )  # fmt: skip
    assert f(target) == ((2,), {})
    f = function_of(
        make.as_callable(make.load_fast("f")) + make.load_const((1, 2)) + make.load_const("k")
        + make.load_const(3) + make.build_map(1) + make.call_function_ex(True)
        + make.return_value(), "f",
    )  # fmt: skip
    assert f(target) == ((1, 2), {"k": 3})
    f = function_of(
        make.load_fast("text") + make.load_method("replace") + make.load_const("a")
        + make.load_const("b") + make.call(2) + make.return_value(), "text",
    )  # fmt: skip
    assert f("banana") == "bbnbnb"
    f = function_of(make.import_module("os.path") + make.return_value())
    assert f() is os.path


def test_functions_with_closures_and_defaults() -> None:
    inner = assemble(
        Program(
            make.begin([], ["x"]) + make.load_fast("a") + make.load_fast("b") + make.load_fast("c")
            + make.load_deref("x") + make.build_tuple(4) + make.return_value(),
            varnames=["a", "b", "c"], freevars=["x"], argcount=2, kwonlyargcount=1, flags=3 | 16,
        )
    )  # fmt: skip
    body = (
        make.load_const((5,)) + make.load_const("c") + make.load_const(6) + make.build_map(1)
        + make.load_closure("x") + make.build_tuple(1) + make.load_const(inner)
        + make.make_function(make.DEFAULTS | make.KEYWORD_DEFAULTS | make.CLOSURE)
        + make.return_value()
    )  # fmt: skip
    f = function_of(body, "x", cellvars=["x"])
    assert f(7)(1) == (1, 5, 6, 7)
    assert f(7)(1, 2, c=3) == (1, 2, 3, 7)


def test_operators_and_jumps() -> None:
    loop = (
        make.load_const(0) + make.store_fast("total") + make.load_fast("values")
        + make.get_iter()
        + make.for_each(make.load_fast("total") + make.binary("+=") + make.store_fast("total"))
        + make.load_fast("total") + make.return_value()
    )  # fmt: skip
    assert function_of(loop, "values")([1, 2, 3]) == 6
    for text in ("<", "<=", "==", "!=", ">", ">=", "is", "is not", "in", "not in"):
        f = function_of(make.load_fast("a") + make.load_fast("b") + make.compare(text)
                        + make.return_value(), "a b")  # fmt: skip
        pairs = [(2, (1, 2)), (3, (1, 2))] if "in" in text else [(1, 2), (2, 1), (1, 1)]
        for a, b in pairs:
            assert f(a, b) == eval(f"a {text} b"), (text, a, b)
    for text in ("-", "+", "~", "not"):
        f = function_of(make.load_fast("a") + make.unary(text) + make.return_value(), "a")
        assert f(5) == eval(f"{text} 5")
    assert function_of(make.load_fast("a") + make.unary("not") + make.return_value(), "a")([])
    again = make.label()  # a conditional jump back: 3.12 and 3.13 have none
    for build, expected in ((make.pop_jump_if_true, 0), (make.pop_jump_if_not_none, None)):
        body = again + make.load_fast("it") + make.load_method("pop") + make.call(0)
        body += make.store_fast("v") + make.load_fast("v") + build(again)
        f = function_of(body + make.load_fast("v") + make.return_value(), "it")
        assert f([3, None, 0, 2, 1]) == expected
    end = make.label()
    f = function_of(make.load_fast("a") + make.pop_jump_if_none(end) + make.return_const("some")
                    + end + make.return_const("none"), "a")  # fmt: skip
    assert f(None) == "none" and f(0) == "some"


def test_the_stack_is_arranged() -> None:
    for n in (1, 2, 3, 4):
        body = [x for i in range(n) for x in make.load_const(i)] + make.rot(n)
        f = function_of(body + make.build_tuple(n) + make.return_value())
        assert f() == (n - 1, *range(n - 1))
    f = function_of(make.load_const(1) + make.load_const(2) + make.copy(2) + make.dup()
                    + make.swap(3) + make.build_list(4) + make.return_value())  # fmt: skip
    assert f() == [1, 1, 1, 2]


def test_handlers_and_places() -> None:
    """A handler made by hand; the line of the exception is the one given."""
    guarded = make.located(
        make.load_fast("f") + make.callable_on_top() + make.call(0), Positions(7)
    )
    handler = make.pop_top() + [Instruction("PUSH_EXC_INFO")]
    handler = [Instruction("PUSH_EXC_INFO")] + make.pop_top() + [Instruction("POP_EXCEPT")]
    handler += make.return_const("caught")
    program = Program(
        make.begin([], []) + guarded + make.return_value() + handler,
        varnames=["f"], argcount=1, flags=3,
    )  # fmt: skip
    bare = Program(list(program.instructions), varnames=["f"], argcount=1, flags=3, firstlineno=900)
    program.exceptions = [ExceptionEntry(guarded[0], guarded[-1], handler[0], 0)]
    assert types.FunctionType(assemble(program), {})(lambda: 1) == 1
    assert types.FunctionType(assemble(program), {})(lambda: 1 // 0) == "caught"
    bare.instructions = bare.instructions[: -len(handler)]
    with pytest.raises(ZeroDivisionError) as raised:
        types.FunctionType(assemble(bare), {})(lambda: 1 // 0)
    assert raised.traceback[1].lineno == 6  # counted from 0


def test_of_overlapping_entries_the_first_holds() -> None:
    def caught(value: str) -> list[Instruction]:
        clear = [Instruction("PUSH_EXC_INFO")] + make.pop_top() + [Instruction("POP_EXCEPT")]
        return clear + make.return_const(value)

    parts = [make.load_fast("f") + make.callable_on_top() + make.load_const(i) + make.call(1)
             + make.pop_top() for i in range(3)]  # fmt: skip
    inner, outer = caught("inner"), caught("outer")
    body = [x for part in parts for x in part]
    program = Program(
        make.begin([], []) + body + make.return_const("ran") + inner + outer,
        varnames=["f"], argcount=1, flags=3,
    )  # fmt: skip
    program.exceptions = [
        ExceptionEntry(parts[1][0], parts[1][-1], inner[0], 0),
        ExceptionEntry(body[0], body[-1], outer[0], 0),
    ]
    run = types.FunctionType(assemble(program), {})
    assert [run(lambda i, k=k: 1 // (i - k)) for k in range(4)] == [
        "outer",
        "inner",
        "outer",
        "ran",
    ]


def test_positions_of_any_size() -> None:
    places = [Positions(5, 5, 0, 3), Positions(5, 5, 79, 90), Positions(6, 6, 100, 120), None,
              Positions(7, 9, 1, 2), Positions(3, 3, 200, 300), Positions(900),
              Positions(1, 70, 0, 9)]  # fmt: skip
    body = make.begin([], [])
    for where in places:
        body += make.located(make.load_const("x" * 9) + make.pop_top(), where)
    code = assemble(Program(body + make.return_const(None), flags=3, firstlineno=5))
    got = list(dict.fromkeys(code.co_positions()))
    for where in places:
        expected = (None,) * 4 if where is None else tuple(where)
        if where == Positions(900):
            expected = (900, 900, None, None)
        assert expected in got, expected


def test_the_source_names_only_python_that_it_is_for() -> None:
    assert sys.version_info[:2] in ((3, 11), (3, 12), (3, 13))
    assert ast.parse(Path(programs.__file__).read_text())
