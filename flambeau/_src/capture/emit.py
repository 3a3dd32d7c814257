"""The replacement code: load what is needed, run the graph, replay the effects, return or go on."""

from __future__ import annotations

import collections
import functools
import operator
import types
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from flambeau._src import _native
from flambeau._src.capture import forward_ad, going_on, modes, rerun, tensor_hooks
from flambeau._src.capture.backward import first_leaf
from flambeau._src.capture.bytecode import Instruction, Positions, Program, assemble, make
from flambeau._src.capture.effects import Effect, effects
from flambeau._src.capture.lookup import own_dict
from flambeau._src.capture.outcome import Region, Unsupported
from flambeau._src.capture.overriding import has_say
from flambeau._src.capture.rebuild import Rebuild
from flambeau._src.capture.source import LocalSource
from flambeau._src.core.tensor import Tensor
from flambeau._src.ir.graph import Graph

if TYPE_CHECKING:
    from flambeau._src.capture.interpreter import Frame
    from flambeau._src.capture.session import Session

__all__ = ["Emission"]

Code = list[Instruction]


class Emission:
    """The replacement of one frame: the graph's region, and code around it."""

    def __init__(
        self,
        session: Session,
        frame: Frame,
        own_cells: dict[int, str],
        limit: Unsupported | None = None,
    ) -> None:
        self.session = session
        self.limit = limit  # why the graph ends before the frame does
        self.frame = frame
        self.rebuild = Rebuild(session, own_cells)
        self.effects: list[Effect] = effects(session)
        self.region: Region | None = None
        self.called: Code = []  # the call of the graph
        self.records = False  # the graph is called with recording on, which was off
        for effect in self.effects:
            if effect.target is not None:
                self.rebuild.need_source(effect.target)
            values = effect.value if effect.kind in _MANY else [effect.value]
            for value in values:
                for part in value if effect.kind == "dict" else (value,):
                    self.rebuild.need(part)
            if effect.kind in ("item", "delete item"):
                self.rebuild.need(effect.name)

        for handle in self._hooks() * 2:  # twice: it stays in a temporary
            self.rebuild.need(handle)

    def _hooks(self) -> list[Any]:
        """Hooks of outside tensors, which are registered once the graph has run."""
        return [h for h in self.session.hooks if h.node is None]

    def need(self, values: list[Any]) -> None:
        """What the code will push after the effects."""
        for value in values:
            self.rebuild.need(value)

    def body(self, values: list[Any]) -> tuple[Code, list[str]]:
        """Everything up to the effects, and temporaries of the values, which were `need`ed."""
        rebuild = self.rebuild
        graph_code = self._run_graph()
        out = rebuild.load_sources() + graph_code
        names = []
        for handle in self._hooks():
            out += rebuild.value(handle) + make.pop_top()
        if not self.effects and len(values) == 1:
            return out + rebuild.value(values[0]) + self._modes(), []
        for value in values:
            name = rebuild.temporary()
            out += rebuild.value(value) + make.store_fast(name)
            names.append(name)
        prepared: list[Code] = []
        for effect in self.effects:
            code, effect_code = self._effect(effect)
            out += code
            prepared.append(effect_code)
        for effect_code in prepared:
            out += effect_code
        return out + self._modes(), names

    def _modes(self) -> Code:
        """The modes that the program leaves behind: a compiled graph sets none."""
        now = modes.settings(casts=False)
        if now == self.session.modes and not self.records:
            return []
        return (
            make.as_callable(make.load_const(modes.Settings.put))
            + make.load_const(now)
            + (make.call(1) + make.pop_top())
        )

    # ---- the graph ----

    def _run_graph(self) -> Code:
        session, rebuild = self.session, self.rebuild
        recorder = session.recorder
        graph = recorder.graph
        tensor_hooks.check(session, rebuild.outputs)
        _check_leaves(session, rebuild.outputs)
        forward_ad.check(session, rebuild.outputs, self.limit)
        nodes = [recorder.node_of(t) for t in rebuild.outputs]
        graph.output(tuple(nodes))
        _trim(graph)
        if not any(n.op in ("call_function", "call_method") for n in graph.nodes):
            return []
        name = f"__compiled_fn_{session.options.next_name()}"
        inputs = []
        for node in graph.nodes:
            if node.op != "placeholder":
                break
            inputs.append(next(i for i in recorder.inputs if i.node is node))
        self.region = Region(
            name,
            graph,
            recorder.attributes,
            [i.source for i in inputs],  # type: ignore[misc]
            [i.fake for i in inputs],
            session.fake_mode,
            records=session.modes.grad or self._records(graph),
        )
        asked = any(i.made_of is not None or has_say(i.kind) for i in session.tensors.values())
        code = self._recording()
        if asked:
            code += make.as_callable(make.load_const(going_on.unasked)) + make.load_global(name)
        else:
            code += make.load_global(name, True)
        for info in inputs:
            rebuild.need_source(info.source)  # type: ignore[arg-type]
        shared = _shared_prefixes([i.source for i in inputs])
        for source in shared:
            rebuild.need_source(source)
        loads: Code = []
        for info in inputs:
            loads += _Late(rebuild, info.source).code()
        self.called = make.call(len(inputs) + asked)
        code += loads + self.called
        names: dict[int, str] = {}
        if not rebuild.outputs:
            return code + make.pop_top()
        code += make.unpack_sequence(len(rebuild.outputs))
        for tensor in rebuild.outputs:
            temporary = names[id(tensor)] = rebuild.temporary()
            kind = rebuild.plans[id(tensor)].extra
            if kind is not None and kind is not Tensor:
                code += make.store_fast(temporary)
                args = make.load_fast(temporary) + make.load_const(kind)
                code += rebuild._call(going_on.wrapped, args, 2)
            code += make.store_fast(temporary)
        rebuild.take_outputs(names)
        return code

    def protect(self, program: Program) -> None:
        """Add what is done where the graph raises."""
        if self.called and not self.records:
            assert self.region is not None
            rerun.protect(self.session, program, self.region.name, self.called, self.frame.code)

    def _records(self, graph: Graph) -> bool:
        """Whether the graph, which begins without recording, turns it on.

        Then it is called with recording on, and turns it off itself: who differentiates it ahead of
        time asks once, as it is called.
        """
        if self.session.modes.grad:
            return False
        body = [n for n in graph.nodes if n.op != "placeholder"]
        switches = [n for n in body if n.target is _native.set_grad]
        if not any(n.args[0] for n in switches):
            return False
        self.records = True
        with graph.inserting_before(body[0]):
            graph.create_node("call_function", _native.set_grad, (False,), {})
        return True

    def _recording(self) -> Code:
        if not self.records:
            return []
        on = make.as_callable(make.load_const(_native.set_grad)) + make.load_const(True)
        return on + make.call(1) + make.pop_top()

    # ---- effects ----

    def _effect(self, effect: Effect) -> tuple[Code, Code]:
        """Code that makes the new value, and code that puts it where it belongs."""
        rebuild = self.rebuild
        kind = effect.kind
        name = rebuild.temporary()
        if kind == "iterator":
            target = rebuild.source(_of(effect))
            if effect.value is None:
                drain = make.as_callable(make.load_const(collections.deque)) + target
                return [], drain + make.load_const(0) + make.call(2) + make.pop_top()
            move = target + make.load_method("__setstate__") + make.load_const(effect.value)
            return [], move + make.call(1) + make.pop_top()
        if kind == "delete item" and effect.native is not None:
            args = rebuild.source(_of(effect)) + rebuild.value(effect.name)
            return [], rebuild._call(effect.native.__delitem__, args, 2) + make.pop_top()
        if kind == "delete item":
            code = rebuild.source(_of(effect)) + rebuild.value(effect.name)
            return [], code + make.delete_subscr()
        if kind == "pop item":
            code = rebuild.source(_of(effect)) + make.load_method("popitem") + make.call(0)
            return [], code + make.pop_top()
        if kind == "delete attribute":
            args = rebuild.source(_of(effect)) + make.load_const(effect.name)
            return [], rebuild._call(object.__delattr__, args, 2) + make.pop_top()
        if kind == "delete hidden":
            args = rebuild._call(own_dict, rebuild.source(_of(effect)), 1)
            args += make.load_const(effect.name)
            return [], rebuild._call(dict.__delitem__, args, 2) + make.pop_top()
        if kind in _MANY:
            return self._contents(effect, name)
        made = rebuild.value(effect.value) + make.store_fast(name)
        load = make.load_fast(name)
        if kind == "cell":
            return made, load + make.store_deref(effect.name)
        if kind == "global":
            return made, load + make.store_global(effect.name)
        target = rebuild.source(_of(effect))
        if kind == "attribute":
            return made, load + target + make.store_attr(effect.name)
        if kind == "item":
            key = rebuild.temporary()
            made += rebuild.value(effect.name) + make.store_fast(key)
            if effect.native is not None:
                args = target + make.load_fast(key) + load
                return made, rebuild._call(effect.native.__setitem__, args, 3) + make.pop_top()
            return made, load + target + make.load_fast(key) + make.store_subscr()
        if kind == "hidden attribute":
            args = rebuild._call(own_dict, target, 1) + make.load_const(effect.name) + load
            return made, rebuild._call(dict.__setitem__, args, 3) + make.pop_top()
        args = target + make.load_const(effect.name) + load
        put = going_on.put_unasked if kind == "unasked attribute" else object.__setattr__
        return made, rebuild._call(put, args, 3) + make.pop_top()

    def _contents(self, effect: Effect, name: str) -> tuple[Code, Code]:
        rebuild = self.rebuild
        if effect.kind == "dict":
            made: Code = []
            for key, value in effect.value:
                made += rebuild.value(key) + rebuild.value(value) + make.build_tuple(2)
        else:
            made = [x for v in effect.value for x in rebuild.value(v)]
        made += make.build_list(len(effect.value)) + make.store_fast(name)
        target = rebuild.source(_of(effect))
        if effect.native is not None:
            args = target + make.load_fast(name)
            return made, rebuild._call(_native_refill(effect.native), args, 2) + make.pop_top()
        if effect.kind == "list":
            code = make.load_fast(name) + target + make.load_const(slice(None))
            return made, code + make.store_subscr()
        fill = "extend" if effect.kind == "deque" else "update"
        code = target + make.load_method("clear") + make.call(0) + make.pop_top()
        code += target + make.load_method(fill) + make.load_fast(name) + make.call(1)
        return made, code + make.pop_top()

    # ---- the whole ----

    def returning(self, value: Any) -> types.CodeType:
        """Code that returns the value."""
        self.need([value])
        body, names = self.body([value])
        program = begin(self.frame)
        program.instructions += body
        for name in names:
            program.instructions += make.load_fast(name)
        program.instructions += make.return_value()
        self.protect(program)
        return finish(program)


@functools.cache
def _native_refill(base: Any) -> Callable[[Any, list[Any]], None]:
    """Puts other items into a container, by the methods of its native class."""

    def refill(value: Any, items: list[Any]) -> None:
        base.clear(value)
        if issubclass(base, dict):
            for key, item in items:
                base.__setitem__(value, key, item)
        elif issubclass(base, set):
            base.update(value, items)
        else:
            base.extend(value, items)

    return refill


_MANY = frozenset(("list", "dict", "set", "deque"))


def _check_leaves(session: Session, outputs: list[Any]) -> None:
    """Refuse to give out what leads to a leaf that the graph makes: gradients must arrive there,
    and a graph that is differentiated ahead of time has none but its inputs."""
    for t in outputs if session.leaves else ():
        found = first_leaf(t, session.leaves)
        if found is not None:
            step, stack = session.leaves[found]
            refusal = Unsupported(
                "A tensor made in the graph is told to require gradients, and leaves the graph.",
                "Take its gradients in the function, or detach what is returned.",
            )
            refusal.step, refusal.stack, refusal.where = step, stack, stack[-1]
            raise refusal


def _of(effect: Effect) -> Any:
    assert effect.target is not None
    return effect.target


class _Late:
    """A source that is loaded by name once the names are given."""

    def __init__(self, rebuild: Rebuild, source: Any) -> None:
        self.rebuild = rebuild
        self.source = source

    def code(self) -> Code:
        rebuild = self.rebuild
        source = self.source
        plain = isinstance(source, LocalSource) and not source.is_cell
        if source in rebuild.sources and rebuild.sources[source] is None and not plain:
            rebuild.sources[source] = rebuild.temporary()
        return rebuild.source(source)


def _shared_prefixes(sources: list[Any]) -> list[Any]:
    """Inner sources that several inputs start from, roots first."""
    count: dict[Any, int] = {}
    for source in sources:
        for part in source.path():
            if part is not source and part.base is not None:
                count[part] = count.get(part, 0) + 1
    return [part for part, n in count.items() if n > 1]


def _trim(graph: Any) -> None:
    """Drop reads of items that nobody uses, inputs that are not used, and, without any work, the
    switches of the grad mode (how it is left is the emission's)."""
    switches = []
    work = False
    for node in reversed(graph.nodes):
        if node.op == "call_function" and node.target is _native.set_grad:
            switches.append(node)
            continue
        if not node.users and (
            node.op == "placeholder"
            or (node.op == "call_function" and node.target is operator.getitem)
        ):
            graph.erase_node(node)
        elif node.op in ("call_function", "call_method"):
            work = True
    if not work:
        for node in switches:
            graph.erase_node(node)


def begin(frame: Frame) -> Program:
    """An empty program with the frame's signature; its cells are plain variables."""
    code = frame.code
    program = Program.like(code)
    count = code.co_argcount + code.co_kwonlyargcount
    count += bool(code.co_flags & 4) + bool(code.co_flags & 8)
    program.varnames = list(code.co_varnames[:count])
    program.cellvars = []
    program.consts = [None]
    program.names = []
    program.instructions = make.begin([], program.freevars)
    return program


def finish(program: Program) -> types.CodeType:
    """Assemble. A piece of code that was put in twice is copied: instructions stand once."""
    seen: set[int] = set()
    out = []
    where = Positions(program.firstlineno)  # every instruction has a line: frames are asked for it
    for x in program.instructions:
        if id(x) in seen:
            x = x.copy()
        seen.add(id(x))
        if x.where is None:
            x.where = where
        out.append(x)
    program.instructions = out
    return assemble(program)
