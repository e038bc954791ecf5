"""``translate``: the kernel IR of a Python function.

The function is walked several times: where a variable begins as a Python number, its dtype is that of what is assigned to it
later, which the next walk knows.
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar

from firebrick.compiler.kernel.ir import (
    ArrayParameter,
    Assign,
    Check,
    Function,
    If,
    Let,
    ScalarParameter,
    SharedArray,
    Statement,
)
from firebrick.compiler.kernel.language.annotations import ArrayType, ConstantType, NumberType, Signature, Size, size_name
from firebrick.compiler.kernel.language.expressions import BINARY
from firebrick.compiler.kernel.language.homes import IGNORED, Body, body_of
from firebrick.compiler.kernel.language.loops import Loops
from firebrick.compiler.kernel.language.outside import Outside
from firebrick.compiler.kernel.language.parsing import parsed
from firebrick.compiler.kernel.language.source import Source
from firebrick.compiler.kernel.language.values import (
    WEAK_DTYPES,
    ArrayValue,
    Held,
    Misfit,
    Open,
    Origins,
    Registers,
    Value,
    Weak,
    as_dtype,
    shown,
)
from firebrick.compiler.kernel.language.writing import CheckSite, Frame, Variable
from firebrick.compiler.kernel.verify import verify
from firebrick.core.dtypes import DType, dtype, float32
from firebrick.core.errors import KernelCompileError
from firebrick.scalar.expr import Expr, const, element, local
from firebrick.scalar.storage import computed

_MOST_WALKS = 50


@dataclass(frozen=True, slots=True)
class Instance:
    """What is known of a kernel when it is translated.

    Attributes:
        dtypes: Of its arrays and numbers.
        constants: Values of its compile-time constants.
        group: Number of items of a group; 0 for none.
        unchecked: Whether indices are not checked.
        deterministic: Whether results must not depend on the order of the items.
    """

    dtypes: tuple[tuple[str, DType], ...]
    constants: tuple[tuple[str, Any], ...] = ()
    group: int = 0
    unchecked: bool = False
    deterministic: bool = True


@dataclass(frozen=True, slots=True)
class Translated:
    """A kernel.

    Attributes:
        function: Kernel IR. Its arrays are those of the signature, then the numbers, each an array of one element; its
            scalars are sizes and integers that sizes depend on.
        sites: Its checks, by number.
        captures: Objects from outside of the function, such as numbers that are constants of it.
        origins: The operations that expressions are results of.
        shapes: Sizes of each array.
        texts: As of ``StatementWriter``.
    """

    function: Function
    sites: tuple[CheckSite, ...]
    captures: Outside
    origins: Origins
    shapes: dict[str, tuple[Expr, ...]]
    texts: dict[tuple[str, type[Statement]], str]


def translate(
    source: Source, signature: Signature, instance: Instance, captures: Outside | None = None
) -> Translated:  # fmt: skip
    """The kernel IR of a function.

    Args:
        source: The function.
        signature: Its parameters.
        instance: Their dtypes, and what else is known.
        captures: Objects from outside of the function; those of now, by default.

    Raises:
        KernelCompileError: The function is not in the kernel language; the error tells the line, and what to do.
    """
    decided: dict[Any, DType] = {}
    for _ in range(_MOST_WALKS):
        walk = _Translator(source, signature, instance, decided, captures or Outside())
        try:
            made = walk.kernel()
        except KernelCompileError:
            if not walk.changed:
                raise
            continue  # a variable may have had another dtype than the next walk gives it
        if not walk.changed:
            verify(made.function, made.texts)
            return made
    raise KernelCompileError(
        f"kernel {source.name}: variables have dtypes", "none that fits all assignments", "cast what is assigned"
    )


class _Translator(Loops):
    def __init__(
        self, source: Source, signature: Signature, instance: Instance, decided: dict[Any, DType], captures: Outside
    ) -> None:  # fmt: skip
        super().__init__(instance.unchecked)
        self.signature, self.instance, self.known = signature, instance, captures
        self.decided, self.changed = decided, False
        self.kinds: dict[Any, type] = {}
        self.begun: set[Any] = set()
        self.weak: set[Any] = set()  # variables of which this walk wrote statements before their dtype was decided
        self.frame = Frame(source, (), {})
        self.initial = {n for n, a in signature.results.items() if a.role == "InOut" or a.initial is not None}
        self.shared: list[SharedArray] = []
        self.stored: set[str] = set()
        self._before: dict[tuple[int, int], list[str]] = {}
        self._entered: dict[int, Body] = {}  # by ``id``; kept alive, since blocks are known by theirs

    # the kernel

    def kernel(self) -> Translated:
        frame, instance = self.frame, self.instance
        dtypes, constants = dict(instance.dtypes), dict(instance.constants)
        sizes = self._sizes()
        arrays: list[ArrayParameter] = []
        for name, p in self.signature.parameters.items():
            self._names.add(name)
            if isinstance(p, ArrayType):
                shape = tuple(sizes[size_name(name, a, s)] for a, s in enumerate(p.sizes))
                frame.names[name] = ArrayValue(name, dtypes[name], shape, p.role)
                if p.initial is not None:
                    held = dtype(computed(dtypes[name].name))
                    self.fitting(frame.source.tree, Weak(p.initial), held, f"the first value of {name}")
            elif isinstance(p, ConstantType):
                v = constants[name]
                frame.names[name] = Held(v) if isinstance(v, DType) else Weak(v)
            elif name in self.signature.static:
                frame.names[name] = local(name, "int64")
                self.facts.fixed.add(name)
        for name, parts in self.signature.tuples.items():
            frame.names[name] = tuple(frame.names[part] for part in parts)
        axes = [self.fresh(n) for n in self._axes()]
        for name, size in zip(axes, self.signature.grid or (Size("1", ()),), strict=True):
            self._index(name, sizes.get(size.text))
        outer, item = tuple(axes[:-1]), axes[-1]
        self.indices_of_grid = axes
        if instance.group:
            outer, item = tuple(axes), self.fresh("lane")
            self._index(item, const(instance.group, "int64"))
        self.item = item
        body = body_of(frame.source, False)
        self.enter(frame, body)
        written = self.block(lambda: self._top(body.statements, dtypes))
        if not self.changed:  # else other dtypes that this walk decided may decide more
            for key, kind in self.kinds.items():  # variables that only Python numbers are assigned to
                if key not in self.decided:
                    self.decided[key] = WEAK_DTYPES[kind]
                    self.changed = True
        for name, p in self.signature.parameters.items():
            if isinstance(p, ArrayType):
                access = "read" if p.role == "In" else "read_write" if name in self.reads else "write"
                arrays.append(ArrayParameter(name, dtypes[name].name, access))
            elif isinstance(p, NumberType) and name not in self.signature.static:
                arrays.append(ArrayParameter(name, dtypes[name].name, "read", 1))
        missing = [n for n in self.signature.results if n not in self.stored]
        if missing and not self.changed:
            self.refuse(
                frame.source.tree, f"the result {missing[0]} is written", "no assignment to its elements",
                f"store them, or remove {missing[0]}",
            )  # fmt: skip
        scalars = tuple(ScalarParameter(str(e.value)) for e in dict.fromkeys(sizes.values()) if e.op == "local")
        scalars += tuple(ScalarParameter(n) for n in self.signature.static if n not in {s.name for s in scalars})
        function = Function(
            frame.source.name if frame.source.name.isascii() else "kernel", tuple(arrays), scalars, item, written, outer,
            instance.group, tuple(self.shared),
        )  # fmt: skip
        shapes = {n: v.sizes for n, v in frame.names.items() if isinstance(v, ArrayValue) and v.role != "shared"}
        return Translated(function, tuple(self.sites), Outside(self.captures.items()), self.origins, shapes, self.texts)

    def _top(self, body: list[ast.stmt], dtypes: dict[str, DType]) -> None:
        """The statements of the kernel; in front of them, its numbers are read."""
        self.top = self.out
        for name, p in self.signature.parameters.items():
            if isinstance(p, NumberType) and name not in self.signature.static:
                read = element(name, computed(dtypes[name].name), const(0, "int64"))
                self.frame.names[f"%{name}" if name in self.frame.changed else name] = self.let(read, f"{name}_value")
        self.statements(body)

    def _axes(self) -> list[str]:
        count = max(1, len(self.signature.grid))
        stem = "group" if self.instance.group else "index"
        return [stem] if count == 1 else [f"{stem}{a}" for a in range(count)]

    def _sizes(self) -> dict[str, Expr]:
        """The expression of each size, by its text."""
        out: dict[str, Expr] = {}
        constants = dict(self.instance.constants)
        for name, p in self.signature.arrays.items():
            for a, s in enumerate(p.sizes):
                text = size_name(name, a, s)
                if text.isdecimal() or text in constants:
                    out[text] = const(int(constants.get(text, text)), "int64")
                elif text.isidentifier():
                    out[text] = local(text, "int64")
                else:  # a size of a result: an argument too, since results are made of it
                    out[text] = local(f"{name}_size{a}", "int64")
        for s in self.signature.grid:
            if s.text.isdecimal() or s.text in constants:
                out[s.text] = const(int(constants.get(s.text, s.text)), "int64")
        for e in out.values():
            if e.op == "local":
                name = str(e.value)
                self._names.add(name)
                self.facts.small.add(name)
                self.facts.fixed.add(name)
                self.facts.know(e)
        for p in self.signature.results.values():
            for s in p.sizes:
                if s is not None and not s.simple:  # what it is made of
                    made = _linear(parsed(s.text, "eval").body, out)
                    if made is not None:
                        size = out[s.text]
                        self.facts.know(size, made)
                        self.facts.know(made, size)
        return out

    def _index(self, name: str, size: Expr | None) -> None:
        """Note what is known of an index of the grid."""
        self.facts.small.add(name)
        self.facts.fixed.add(name)
        e = local(name, "int64")
        self.facts.know(e)
        if size is not None:
            self.facts.know(size, e, -1)

    # blocks and variables

    def enter(self, frame: Frame, body: Body) -> None:
        """Note the homes of a function's variables."""
        for name in body.changed:
            if isinstance(frame.names.get(name), ArrayValue):
                stores = (x for s in body.statements[len(body.changed) :] for x in ast.walk(s) if _stores(x, name))
                self.refuse(
                    next(stores), f"{name} is an array", f"an assignment to {name}", f"assign to its elements: {name}[i] = …"
                )
            if name in frame.names:
                frame.names[f"%{name}"] = frame.names.pop(name)
        frame.changed.update(body.changed)
        frame.homes = body.homes
        if id(body) not in self._entered:  # each call of a function enters it again
            self._entered[id(body)] = body
            for name, home in frame.homes.items():
                if home.before:
                    self._before.setdefault((home.block, home.statement), []).append(name)

    def statements(self, body: Sequence[ast.stmt]) -> None:
        """Translate a block."""
        for k, s in enumerate(body):
            outer = self.line, self.statement
            self.line, self.statement = self.frame.source.line(s), s
            for name in self._before.get((id(body), k), ()):
                if name not in self.frame.names:
                    self._declare(name)
            rule = self._statements.get(type(s))
            if rule is None:
                expected, remedy = REFUSED.get(type(s), ("this is part of the kernel language", "see docs/kernels.md"))
                self.refuse(s, expected, "", remedy)
            try:
                rule(self, s)
            except Misfit as e:
                self.refuse(s, *e.texts)
            self.line, self.statement = outer

    def _key(self, name: str) -> Any:
        return self.frame.path, name

    def _declare(self, name: str) -> None:
        """Define a variable before a branch or loop that assigns to it."""
        key = self._key(name)
        parts = self.decided_parts(name)
        if parts is not None:
            self.frame.names[name] = parts
            return
        to = self.decided.get(key)
        if to is None:
            self.weak.add(key)
        self.frame.names[name] = self._variable(
            name, const(0, (to or float32).name), to, None if to else self.kinds.get(key, float)
        )

    def decided_parts(self, name: str) -> tuple[Any, ...] | None:
        """The variables of a tuple that is assigned in a branch or loop."""
        count = self.decided.get((*self._key(name), "parts"))
        if count is None:
            return None
        made = []
        for i in range(int(count)):  # type: ignore[call-overload]
            part = f"{name}.{i}"
            self._declare(part)
            made.append(self.frame.names.pop(part))
        return tuple(made)

    def _variable(self, name: str, value: Expr, to: DType | None, kind: type | None) -> Variable:
        local_name = self.fresh(name)
        self.emit(Let(local_name, value, line=self.line))
        return Variable(local_name, dtype(value.dtype), None if to else kind)

    def assign(self, node: ast.AST, name: str, value: Value) -> None:
        """Give a variable a value."""
        frame = self.frame
        home = frame.homes.get(name)
        if home is None:
            self.refuse(node, f"the counter {name} keeps its value in the loop", "an assignment to it", "use another name")
        if isinstance(value, Held | ArrayValue | Registers) and not home.once:
            self.refuse(
                node, "a variable that is assigned several times is a number", shown(value), "use another name for each"
            )
        if home.once:
            frame.names[name] = self.settled(value, name)
        else:
            frame.names[name] = self._assigned(node, name, frame.names.get(name), value)
        frame.assigned.add(name)

    def _assigned(self, node: ast.AST, name: str, found: Any, value: Value) -> Any:
        if isinstance(value, tuple):
            key = (*self._key(name), "parts")
            if found is not None and not (isinstance(found, tuple) and len(found) == len(value)):
                if self.decided.get(key) is None:
                    self.decided[key] = len(value)  # type: ignore[assignment]
                    self.changed = True
                    return value
                self.refuse(node, f"{name} is always a tuple of equally many numbers", shown(value), "use another name")
            value = self.settled(value, name)  # of the parts as they are, whose variables are assigned to in turn
            assert isinstance(value, tuple)
            old = found or (None,) * len(value)
            return tuple(self._assigned(node, f"{name}.{i}", o, v) for i, (o, v) in enumerate(zip(old, value, strict=True)))
        if isinstance(found, tuple):
            self.refuse(node, f"{name} is a tuple of {len(found)}", shown(value), "use another name")
        key = self._key(name)
        if not isinstance(value, Expr | Weak | Open):
            self.refuse(node, f"{name} is a number", shown(value), "use another name")
        to = self._decide(key, value)
        if found is not None and not isinstance(found, Variable):  # a part of a tuple, which is one only since this walk
            return value
        if found is None:
            first = as_dtype(value, self._default(value)) if to is None else self.fitting(node, value, to, name)
            return self._variable(name, first, to, self.kinds.get(key))
        held = as_dtype(value, found.dtype) if to is None else self.fitting(node, value, to, name)
        if held.dtype != found.dtype.name:  # decided during this walk: the next one knows it from the beginning
            held = as_dtype(value, found.dtype)
            self.changed = True
        self.emit(Assign(found.name, held, line=self.line))
        self.facts.forget((found.name,))
        return found if found.kind is None else replace(found, kind=self.kinds.get(key, found.kind))

    @staticmethod
    def _default(value: Value) -> DType:
        if isinstance(value, Weak):
            return WEAK_DTYPES[type(value.value)]
        assert isinstance(value, Open)
        return dtype(value.expr.dtype)

    def _decide(self, key: Any, value: Value) -> DType | None:
        """The dtype of a variable; None as long as only Python numbers were assigned to it."""
        found = self.decided.get(key)
        if isinstance(value, Expr):
            own = dtype(value.dtype)
            # an earlier walk may have decided by a dtype that was not decided itself
            if found is None or (found is not own and key not in self.begun):
                self.changed |= found is not None or key in self.weak
                found = self.decided[key] = own
            self.begun.add(key)
            return found
        kind = type(value.value) if isinstance(value, Weak) else value.kind  # type: ignore[union-attr]
        known = self.kinds.get(key, kind)
        self.kinds[key] = max(known, kind, key=(bool, int, float).index)
        if found is None:
            self.weak.add(key)
        return found

    # statements

    def _assign(self, s: ast.Assign) -> None:
        value = self.value(s.value)
        if len(s.targets) > 1:
            value = self.settled(value)
        for target in s.targets:
            self._to(target, value)

    def _annotated(self, s: ast.AnnAssign) -> None:
        name = ast.unparse(s.target)
        self.refuse(s, "variables have no annotations", "", f"write {name} = …, and cast the value if it has another dtype")

    def _to(self, target: ast.expr, value: Value) -> None:
        if isinstance(target, ast.Name):
            if target.id != IGNORED:
                self.assign(target, target.id, value)
        elif isinstance(target, ast.Tuple | ast.List):
            if not isinstance(value, tuple) or len(value) != len(target.elts):
                self.refuse(
                    target,
                    f"a value for each of {len(target.elts)} names",
                    shown(value),
                    "write as many names as there are values",
                )
            for part, v in zip(target.elts, self.settled(value), strict=True):  # type: ignore[arg-type]
                self._to(part, v)
        elif isinstance(target, ast.Subscript):
            self._store(target, value)
        else:
            self.refuse(target, "a variable or an element of an array", ast.unparse(target), "assign to one of these")

    def _store(self, target: ast.Subscript, value: Value) -> None:
        of = self.value(target.value)
        if isinstance(of, Registers):
            variable = self.register(target, of)
            assert isinstance(variable, Variable)
            self.emit(Assign(variable.name, self.fitting(target, value, variable.dtype, "a register"), line=self.line))
            self.facts.forget((variable.name,))
            return
        if not isinstance(of, ArrayValue):
            self.refuse(target, "elements of arrays are assigned to", shown(of), "index an array")
        self.stored.add(of.name)
        self.store(target, of, self.indices(target, of), value)

    def _augmented(self, s: ast.AugAssign) -> None:
        name = BINARY.get(type(s.op))
        if name is None:
            self.refuse(s, "kernels have no products of matrices", "@=", "write loops over the elements")
        old, by = self.values([_loaded(s.target), s.value])
        self._to(s.target, self.power(old, by) if name == "pow" else self.apply(name, old, by))

    def _if(self, s: ast.If) -> None:
        test = self.condition(s.test)
        if isinstance(test, bool):
            self.statements(s.body if test else s.orelse)
            return
        test = self.let(test, "test") if _long(test) else test
        before = set(self.frame.assigned)
        with self.facts.scope():
            self.facts.holds(test)
            then = self.block(lambda: self.statements(s.body))
        after_then, self.frame.assigned = self.frame.assigned, set(before)
        with self.facts.scope():
            self.facts.holds(test, False)
            other = self.block(lambda: self.statements(s.orelse))
        self.frame.assigned &= after_then
        if then or other:
            self.emit(If(test, then, other, line=self.line))

    def _expression(self, s: ast.Expr) -> None:
        if not isinstance(s.value, ast.Call):
            if isinstance(s.value, ast.Constant) and (isinstance(s.value.value, str) or s.value.value is Ellipsis):
                return
            self.refuse(s, "a statement has an effect", "an expression whose value is not used", "assign it, or remove it")
        self._call(s.value, used=False)

    def _assert(self, s: ast.Assert) -> None:
        if s.msg is not None and not (isinstance(s.msg, ast.Constant) and isinstance(s.msg.value, str)):
            self.refuse(s, "the message of an assertion is text", ast.unparse(s.msg), "write a text")
        test = self.condition(s.test)
        message = s.msg.value if isinstance(s.msg, ast.Constant) else ast.unparse(s.test)
        if test is False:
            self.refuse(s, "an assertion may hold", "False", "correct the condition")
        if isinstance(test, Expr):
            self.emit(Check(test, self.site("", 0, str(message)), const(0, "int64"), line=self.line))

    def _pass(self, s: ast.stmt) -> None:
        return None

    _statements: ClassVar[dict[type, Callable[[Any, Any], None]]] = {
        ast.Assign: _assign, ast.AnnAssign: _annotated, ast.AugAssign: _augmented, ast.If: _if, ast.While: Loops.while_,
        ast.For: Loops.for_, ast.Expr: _expression, ast.Assert: _assert, ast.Pass: _pass, ast.Return: Loops.returned,
    }  # fmt: skip


def _linear(e: ast.expr, sizes: Mapping[str, Expr]) -> Expr | None:
    """A size that is a sum of names and numbers, as an expression; None for others."""
    if isinstance(e, ast.Constant):
        return const(int(e.value), "int64")  # type: ignore[arg-type]
    if isinstance(e, ast.Name):
        return sizes.get(e.id)
    if isinstance(e, ast.BinOp) and isinstance(e.op, ast.Add | ast.Sub):
        a, b = _linear(e.left, sizes), _linear(e.right, sizes)
        if a is not None and b is not None:
            return a + b if isinstance(e.op, ast.Add) else a - b
    return None


def _loaded(target: ast.expr) -> ast.expr:
    """A target of an assignment as an expression that reads it."""
    if isinstance(target, ast.Name):
        return ast.copy_location(ast.Name(target.id, ast.Load()), target)
    if isinstance(target, ast.Subscript):
        return ast.copy_location(ast.Subscript(target.value, target.slice, ast.Load()), target)
    return target


def _stores(x: ast.AST, name: str) -> bool:
    return isinstance(x, ast.Name) and x.id == name and isinstance(x.ctx, ast.Store)


def _long(e: Expr) -> bool:
    return e.op not in ("local", "const")


REFUSED: dict[type, tuple[str, str]] = {
    ast.FunctionDef: ("functions are defined outside of kernels", "decorate it with @fb.kernel.function there"),
    ast.ClassDef: ("kernels have no classes", "use variables"),
    ast.Delete: ("variables are not deleted", "remove it"),
    ast.With: ("kernels have no with", "remove it"),
    ast.Raise: ("kernels do not raise", "write assert condition, 'message'"),
    ast.Try: ("kernels have no exceptions", "test the condition with if"),
    ast.Import: ("imports are outside of kernels", "move it to the top of the file"),
    ast.ImportFrom: ("imports are outside of kernels", "move it to the top of the file"),
    ast.Global: ("a kernel does not assign to names outside of it", "pass arrays"),
    ast.Nonlocal: ("a kernel does not assign to names outside of it", "pass arrays"),
    ast.Match: ("kernels have no match", "write if and elif"),
    ast.AsyncFor: ("kernels are not asynchronous", "write for"),
}  # fmt: skip
"""Statements that the language does not have: what is expected, and what to do."""
