"""A graph that raises: modes are put back, and the function runs as it is.

The replacement's effects come after its graph. Where an operator raises, the program had begun with
them, and may handle the exception. Where nothing can be seen of what the graph had done by then (it
writes no input and draws no random number), the function's own code runs from its beginning: it
does what is to be done, raises in the user's line, and handles.
"""

from __future__ import annotations

import dataclasses
import operator
from types import CodeType, FunctionType
from typing import TYPE_CHECKING, Any

from flambeau._src import _native
from flambeau._src.capture import going_on, library, modes, tensor_calls
from flambeau._src.capture.bytecode import ExceptionEntry, Instruction, Program, make
from flambeau._src.capture.values.tensors import is_tensor
from flambeau._src.ops.overload import OpOverload

if TYPE_CHECKING:
    from flambeau._src.capture.session import Session

__all__ = ["protect"]

_STARS = 0x04 | 0x08  # *args, **kwargs
_NAMESPACES = frozenset(("aten", "prims", "prim"))


def protect(
    session: Session, program: Program, name: str, called: list[Instruction], own: CodeType
) -> None:
    """Add to a program what is done when the call of its graph, the global `name`, raises."""
    graph = session.recorder.graph
    again = bool(session.options.repeats) and _unseen(session, graph)
    if not again and not any(_sets_mode(n.target) for n in graph.nodes):
        return
    out = handler = make.label()  # the exception is on the stack
    entry = dataclasses.replace(session.modes, casts=None)
    out += make.as_callable(make.load_const(modes.Settings.put)) + make.load_const(entry)
    out += make.call(1) + make.pop_top()
    if again:
        code = _flat(own)
        out += make.as_callable(make.load_const(going_on.once_more)) + make.copy(3)
        out += make.load_global(name)
        out += make.function(code, own.co_freevars)
        for parameter in code.co_varnames[: code.co_argcount]:
            out += make.load_fast(parameter)
        out += make.build_tuple(code.co_argcount) + make.call(4)
        out += make.swap(2) + make.pop_top() + make.return_value()
    else:
        out += [Instruction("RERAISE", 0, 0)]
    program.instructions += out
    program.exceptions.append(ExceptionEntry(called[0], called[-1], handler[0], 0))


def _flat(code: CodeType) -> CodeType:
    """The code with all its parameters positional: it is called with what they hold."""
    count = code.co_argcount + code.co_kwonlyargcount
    count += bool(code.co_flags & 0x04) + bool(code.co_flags & 0x08)
    return code.replace(
        co_argcount=count, co_posonlyargcount=0, co_kwonlyargcount=0,
        co_flags=code.co_flags & ~_STARS,
    )  # fmt: skip


def _sets_mode(target: Any) -> bool:
    return target is _native.set_grad or target in tensor_calls.SETTERS


def _unseen(session: Session, graph: Any) -> bool:
    """Whether nothing shows that the graph has begun to run."""
    recorder = session.recorder
    if session.fake_mode.drawn or recorder.held or recorder.attributes or session.hooks:
        return False
    if session.options.repeats != "functional":
        tensors: list[Any] = [t.fake for t in recorder.inputs if is_tensor(t.fake)]
        if any(t.untyped_storage()._version for t in tensors):  # of views: their base's
            return False
    return all(_is_quiet(n) for n in graph.nodes if n.op == "call_function")


def _is_quiet(node: Any) -> bool:
    target = node.target
    if isinstance(target, OpOverload):
        return target.namespace in _NAMESPACES
    if isinstance(target, FunctionType) and not library.is_library(target.__module__):
        return False
    done = node.meta.get("val") is not None or type(target) is _native.Function
    return done or target is operator.setitem or _sets_mode(target)
