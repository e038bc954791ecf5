"""A kernel without loops as operations of the op table on whole arrays: what its gradient is derived from.

Every item executes the statements at once. Branches become selections; reads and stores at the item's own place are whole
arrays, others are gathers and scatters. Inside of a branch the values from outside are replaced by 1 for items that do not
take it, so that no derivative there is NaN.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from firebrick.compiler.kernel.ir import Assign, Check, For, If, Let, Statement, Store, While, expressions, headline, statements
from firebrick.compiler.kernel.language.coverage import own_place
from firebrick.compiler.kernel.language.kernel_program import KernelProgram, LaunchSizes
from firebrick.core.constants import constant
from firebrick.core.dtypes import dtype, int64
from firebrick.core.hooks import hooks
from firebrick.core.tensor import Tensor
from firebrick.ops.table import OPS
from firebrick.scalar.elements import philox_word
from firebrick.scalar.expr import FLOATS, Expr, const, load, local, rebuilt, rewritten, select, walk
from firebrick.scalar.storage import computed


class NotComposed(Exception):
    """The kernel has a statement or expression that no operations stand for."""


_RAW: dict[str, str] = {
    "add": "add", "sub": "subtract", "mul": "multiply", "min": "minimum", "max": "maximum", "lt": "less", "le": "less_equal",
    "gt": "greater", "ge": "greater_equal", "eq": "equal", "ne": "not_equal", "neg": "negative", "abs": "abs", "sqrt": "sqrt",
    "floor": "floor", "ceil": "ceil", "trunc": "trunc", "rint": "round", "select": "where", "copysign": "copysign",
    "shl": "bitwise_left_shift", "shr": "bitwise_right_shift",
}  # fmt: skip
_OF_BITS = {"and": "bitwise_and", "or": "bitwise_or", "xor": "bitwise_xor", "not": "bitwise_invert"}
_OF_BOOLS = {"and": "logical_and", "or": "logical_or", "xor": "logical_xor", "not": "logical_not"}


def obstacle(program: KernelProgram) -> str:
    """Why a kernel is not a composition of operations; empty if it is one."""
    function = program.translated.function
    try:
        if function.group:
            raise NotComposed("it has groups")
        _check_statements(function.body, program.translated.texts)
        for root in _roots(function.body):
            _check_expression(root, program.translated.origins)
    except NotComposed as e:
        return str(e)
    return ""


def _roots(body: tuple[Statement, ...]) -> list[Expr]:
    return [e for s in statements(body) for e in expressions(s)]


def _check_statements(body: tuple[Statement, ...], texts: Mapping[tuple[str, type[Statement]], str]) -> None:
    for s in body:
        if not isinstance(s, Let | Assign | If | Store | Check):
            what = "a loop" if isinstance(s, For | While) else "an atomic operation"
            raise NotComposed(f"it has {what}, `{texts.get((s.line, type(s))) or headline(s)}` at {s.line}")
        if isinstance(s, If):
            _check_statements(s.then, texts)
            _check_statements(s.otherwise, texts)


def _check_expression(root: Expr, origins: Mapping[Expr, tuple[str, tuple[Expr, ...]]]) -> None:
    stack, seen = [root], set()
    while stack:
        e = stack.pop()
        if e in seen:
            continue
        seen.add(e)
        if e in origins:
            stack.extend(origins[e][1])
        elif e.op in _RAW or e.op in _OF_BITS or e.op in ("const", "local", "element", "cast", "fma", "philox"):
            stack.extend(e.args)
        else:
            raise NotComposed(f"{e.op} of {e.dtype} has no derivative")


def composed(program: KernelProgram, operands: tuple[Tensor, ...], statics: Mapping[str, int]) -> tuple[Tensor, ...]:
    """The results of a kernel, by operations on whole arrays.

    Args:
        program: Kernel without an ``obstacle``.
        operands: Its operands.
        statics: Integers that sizes depend on.
    """
    sizes = program.sizes([x.shape for x in operands], statics)
    run = _Run(program, dict(zip(program.operands, operands, strict=True)), sizes, operands[0].device)
    run.block(program.translated.function.body, None)
    return tuple(run.result(name) for name in program.signature.results)


class _Run:
    def __init__(self, program: KernelProgram, operands: dict[str, Tensor], sizes: LaunchSizes, device: Any) -> None:
        self.program, self.operands, self.sizes, self.device = program, operands, sizes, device
        function = program.translated.function
        self.origins, self.shapes, self.grid = program.translated.origins, program.translated.shapes, sizes.grid
        self.values: dict[str, Tensor] = {n: constant(v, int64, device) for n, v in sizes.scalars.items()}
        for axis, name in enumerate((*function.outer, function.item)):
            shape = tuple(n if a == axis else 1 for a, n in enumerate(self.grid))
            self.values[name] = hooks.from_host(np.arange(self.grid[axis], dtype=np.int64).reshape(shape), device)
        self.states: dict[str, Tensor] = {}
        for (name, array), aval in zip(program.signature.results.items(), sizes.results, strict=True):
            if array.role == "InOut":
                self.states[name] = operands[name]
            else:
                first = constant(array.initial or 0, aval.dtype, device)
                self.states[name] = OPS["broadcast_to"](first, shape=aval.shape)
        # names that the block under the mask defines itself, and values from outside of it as items under the mask see them
        self.inside: set[str] = set()
        self.seen: dict[str, Tensor] = {}

    def result(self, name: str) -> Tensor:
        return self.states[name]

    # statements

    def block(self, body: tuple[Statement, ...], mask: Tensor | None) -> None:
        before = set(self.values)
        context, self.inside, self.seen = (self.inside, self.seen), set(), {}
        for s in body:
            match s:
                case Let():
                    self.values[s.name] = self._value(s.value, mask)
                    self.inside.add(s.name)
                case Assign():
                    new = self._value(s.value, mask)
                    kept = mask is None or s.name in self.inside
                    self.values[s.name] = new if kept else self._where(mask, new, self.values[s.name])
                    self.seen.pop(s.name, None)
                case If():
                    c = self._value(s.condition, mask)
                    for condition, inner in ((c, s.then), (OPS["logical_not"](c), s.otherwise)):
                        self.block(inner, condition if mask is None else OPS["logical_and"](mask, condition))
                    self.seen = {}
                case Store():
                    self._store(s, mask)
                case _:
                    pass
        self.values = {n: v for n, v in self.values.items() if n in before}
        self.inside, self.seen = context

    # expressions

    def _where(self, mask: Any, a: Tensor, b: Tensor) -> Tensor:
        out: Tensor = OPS["where"](mask, a, b)
        return out

    def _value(self, root: Expr, mask: Tensor | None) -> Tensor:
        return self._evaluated(root, mask, {})

    def _evaluated(self, root: Expr, mask: Tensor | None, memo: dict[Expr, Tensor]) -> Tensor:
        stack = [root]
        while stack:
            e = stack[-1]
            if e in memo:
                stack.pop()
                continue
            name, args = self.origins.get(e, ("", e.args))
            if name == "where" or (not name and e.op == "select"):
                if args[0] not in memo:
                    stack.append(args[0])
                    continue
                memo[e] = self._chosen(args, memo[args[0]], mask)
            else:
                todo = [a for a in args if a not in memo]
                if todo:
                    stack.extend(todo)
                    continue
                memo[e] = self._made(e, name, [memo[a] for a in args], mask)
            stack.pop()
        return memo[root]

    def _chosen(self, args: tuple[Expr, ...], condition: Tensor, mask: Tensor | None) -> Tensor:
        """A selection, each side of which is evaluated for the items that take it."""
        simple = all(a.op in ("const", "local") for a in args[1:])
        if simple:
            return self._where(condition, self._value(args[1], mask), self._value(args[2], mask))
        no = OPS["logical_not"](condition)
        sides = []
        for c, side in ((condition, args[1]), (no, args[2])):
            within = c if mask is None else OPS["logical_and"](mask, c)
            context, self.inside, self.seen = (self.inside, self.seen), set(), {}
            sides.append(self._value(side, within))
            self.inside, self.seen = context
        return self._where(condition, *sides)

    def _made(self, e: Expr, name: str, args: list[Tensor], mask: Tensor | None) -> Tensor:
        out: Tensor
        if name:
            out = OPS[name](*args)
        elif e.op == "const":
            out = constant(e.value, dtype(e.dtype), self.device)
        elif e.op == "local":
            out = self._local(e, mask)
        elif e.op == "element":
            out = self._read(e, args[0], mask)
        elif e.op in ("cast", "bitcast"):  # of integers of one size
            out = OPS["cast"](args[0], dtype=dtype(e.dtype))
        elif e.op == "fma":
            out = OPS["add"](OPS["multiply"](args[0], args[1]), args[2])
        elif e.op == "philox":
            out = self._random(args)
        elif e.op in _OF_BITS:
            out = OPS[(_OF_BOOLS if e.dtype == "bool" else _OF_BITS)[e.op]](*args)
        else:
            out = OPS[_RAW[e.op]](*args)
        return out

    def _local(self, e: Expr, mask: Tensor | None) -> Tensor:
        name = str(e.value)
        found = self.values[name]
        if mask is None or name in self.inside or e.dtype not in FLOATS:
            return found
        if name not in self.seen:  # a derivative that is not finite, of an item that is not here, must not pass
            self.seen[name] = self._where(mask, found, constant(1.0, found.dtype, self.device))
        return self.seen[name]

    def _random(self, args: list[Tensor]) -> Tensor:
        """The bits of ``philox``, by operations on integers."""
        word = philox_word([load(k, "uint32") for k in range(4)], load(4, "int64"))
        (word,) = rewritten([word], lambda e, a: local(f"w{e.value}", e.dtype) if e.op == "load" else rebuilt(e, a))
        kept = self.values
        self.values = {f"w{k}": a for k, a in enumerate(args)}
        out = self._value(word, None)
        self.values = kept
        return out

    # memory

    def _own(self, name: str, at: Expr) -> bool:
        """Whether each item accesses the element of its own indices, and the array has the shape of the grid."""
        shape = self.operands[name].shape if name in self.operands else self.states[name].shape
        if shape != self.grid:
            return False
        return at is own_place(self.program.translated.function, self.shapes[name])

    def _read(self, e: Expr, at: Tensor, mask: Tensor | None) -> Tensor:
        name = str(e.value)
        held = self.states[name] if name in self.states else self.operands[name]
        wide = dtype(e.dtype)
        if name not in self.shapes:  # a number
            out: Tensor = held
        elif self._own(name, e.args[0]):
            out = held
        elif not held.shape or all(n == 1 for n in held.shape):
            out = OPS["reshape"](held, shape=())
        else:
            flat = OPS["reshape"](held, shape=(_count(held.shape),))
            if mask is not None:
                at = self._where(mask, at, constant(0, int64, self.device))
            if not _count(held.shape):
                return OPS["broadcast_to"](constant(0, wide, self.device), shape=at.shape)  # type: ignore[no-any-return]
            line = OPS["reshape"](at, shape=(_count(at.shape),))
            out = OPS["reshape"](OPS["gather"](flat, line, axis=0), shape=at.shape)
        if out.dtype is not wide:
            out = OPS["cast"](out, dtype=wide)
        if mask is not None and e.dtype in FLOATS:
            out = self._where(mask, out, constant(1.0, out.dtype, self.device))
        return out

    def _store(self, s: Store, mask: Tensor | None) -> None:
        held = self.states[s.array]
        value = self._value(s.value, mask)
        if value.dtype is not held.dtype:
            value = OPS["cast"](value, dtype=held.dtype)
        if self._own(s.array, s.index):
            whole = OPS["broadcast_to"](value, shape=held.shape) if value.shape != held.shape else value
            self.states[s.array] = whole if mask is None else self._where(mask, whole, held)
            return
        count = _count(held.shape)
        at = OPS["broadcast_to"](self._value(s.index, mask), shape=self.grid)
        value = OPS["broadcast_to"](value, shape=self.grid)
        flat = OPS["reshape"](held, shape=(count,))
        if mask is not None:  # one more element takes what other items store
            flat = OPS["concat"](flat, constant_line(held), axis=0)
            at = self._where(OPS["broadcast_to"](mask, shape=self.grid), at, constant(count, int64, self.device))
        line = _count(self.grid)
        flat = OPS["scatter"](flat, OPS["reshape"](at, shape=(line,)), OPS["reshape"](value, shape=(line,)), axis=0)
        if mask is not None:
            flat = OPS["slice"](flat, starts=(0,), stops=(count,), steps=(1,))
        self.states[s.array] = OPS["reshape"](flat, shape=held.shape)


def constant_line(like: Tensor) -> Tensor:
    """One element, 0."""
    out: Tensor = OPS["broadcast_to"](constant(0, like.dtype, like.device), shape=(1,))
    return out


def _count(shape: tuple[int, ...]) -> int:
    out = 1
    for n in shape:
        out *= n
    return out


def pure_expression(program: KernelProgram) -> Callable[..., Expr] | None:
    """For a kernel of one result, each of whose elements depends on the elements of the same place alone: that element's
    expression, a function of the operands' elements; None for others."""
    function, signature = program.translated.function, program.signature
    if function.group or len(signature.results) != 1 or obstacle(program) or program.translated.sites:
        return None
    (name,) = signature.results
    if signature.results[name].role != "Out":
        return None
    if any(e.op == "philox" for e in walk(_roots(function.body))):
        return None
    try:
        return _Elementwise(program, name).made()
    except NotComposed:
        return None


class _Elementwise:
    """Executes a kernel's statements on expressions: branches become selections."""

    def __init__(self, program: KernelProgram, result: str) -> None:
        self.program, self.result = program, result
        self.function = program.translated.function
        self.number = {n: k for k, n in enumerate(program.operands)}
        self.shapes = program.translated.shapes
        self.grid = self.shapes[result]
        self.values: dict[str, Expr] = {}
        self.state: Expr | None = None

    def made(self) -> Callable[..., Expr]:
        if any(n in self.shapes and self.shapes[n] != self.grid for n in self.number):
            raise NotComposed("operands of other shapes")
        array = self.program.signature.results[self.result]
        if array.initial is not None:
            self.state = const(array.initial, computed(self.program.dtype(self.result).name))
        self.block(self.function.body, None)
        out = self.state
        if out is None or len(_nodes(out)) > 2000:
            raise NotComposed("no store, or a large expression")

        def scalar(*elements: Expr, **_: Any) -> Expr:
            (found,) = rewritten([out], lambda e, a: elements[int(e.value or 0)] if e.op == "load" else rebuilt(e, a))
            return found

        return scalar

    def block(self, body: tuple[Statement, ...], mask: Expr | None) -> None:
        before = set(self.values)
        for s in body:
            match s:
                case Let():
                    self.values[s.name] = self._value(s.value)
                case Assign():
                    self.values[s.name] = self._value(s.value)
                case If():
                    c = self._value(s.condition)
                    values, state = dict(self.values), self.state
                    self.block(s.then, c)
                    then, then_state = self.values, self.state
                    self.values, self.state = dict(values), state
                    self.block(s.otherwise, c)
                    for n in values:
                        self.values[n] = select(c, then[n], self.values[n])
                    if then_state is not self.state:
                        if then_state is None or self.state is None:
                            raise NotComposed("an element that some items do not store")
                        self.state = select(c, then_state, self.state)
                case Store():
                    self._check_place(s.index, s.array)
                    self.state = self._value(s.value)
                case _:
                    raise NotComposed("a check")
        self.values = {n: v for n, v in self.values.items() if n in before}

    def _check_place(self, at: Expr, name: str) -> None:
        if at is not own_place(self.function, self.grid) or self.shapes.get(name, self.grid) != self.grid:
            raise NotComposed("another place")

    def _value(self, root: Expr) -> Expr:
        def rule(e: Expr, args: tuple[Expr, ...]) -> Expr:
            if e.op == "element":
                name = str(e.value)
                if name in self.shapes:
                    self._check_place(e.args[0], name)
                if name == self.result:
                    if self.state is None or self.state.dtype != self.program.dtype(name).name:
                        raise NotComposed("an element without a value, or one that is rounded when it is stored")
                    return self.state
                return load(self.number[name], e.dtype)
            if e.op == "local" and str(e.value) in self.values:
                return self.values[str(e.value)]
            return rebuilt(e, args)

        (found,) = rewritten([root], rule)
        return found


def _nodes(e: Expr) -> tuple[Expr, ...]:
    found = walk([e])
    if any(x.op == "local" for x in found):
        raise NotComposed("an element depends on its indices, or on sizes")
    return found
