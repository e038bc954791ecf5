"""``doubt``: whether what a generator is given for a group of nodes is what the nodes mean.

Both sides become scalar expressions whose leaves are elements of the group's inputs, at addresses in one canonical form
(``Affine``): the description's by its strides, the nodes' by the ``index_map`` of each op-table entry. Reductions bind named
positions; what an index tensor holds stays uninterpreted; a contraction is a leaf at an index of its result. Expressions are
hash-consed, so equal ones are one object. Nothing here is shared with fusion, lowering or views: the meaning of one element
(``scalar``) is, since that is what both sides are written in.

A proof holds for all inputs. What is not proved need not be wrong: it is not fused.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from math import prod

from firebrick.compiler.fusion.addressing import address_of, covers, linear_address
from firebrick.compiler.fusion.affine import Affine, affine, unknown, value, variable
from firebrick.compiler.fusion.alone import doubt_single
from firebrick.compiler.fusion.convolved import doubt_convolution, geometry_of
from firebrick.compiler.spec.base import Operand, Result
from firebrick.compiler.spec.contract import Contract, contraction_of
from firebrick.compiler.spec.elements import element, is_elementwise, is_reduction, reduced_axes
from firebrick.compiler.spec.kinds import KernelSpec
from firebrick.compiler.spec.nest import Fold, Map, Nest, Row
from firebrick.compiler.spec.parts import Factor
from firebrick.core.aval import Aval
from firebrick.core.op import Element
from firebrick.ir import CONSTANT, Graph, Node
from firebrick.ops.index_maps import aligned, flat, unflattened
from firebrick.scalar.complex_numbers import Parts, by_parts, paired
from firebrick.scalar.complex_numbers import number as constant
from firebrick.scalar.expr import (
    BITS,
    COMPLEX,
    Expr,
    binary,
    bitcast,
    cast,
    const,
    eq,
    load,
    node,
    select,
    walk,
    whole_number,
)
from firebrick.scalar.storage import STORAGE, computed

Index = tuple[Affine | int, ...]

PLACEHOLDER = 1 << 40
"""Numbers of the operands in a row operation's expression, which no description reaches."""


class _Unknown(Exception):
    """What the checker does not know, which is then not proved."""


def doubt(body: Graph, spec: KernelSpec) -> str:
    """Why a specification is not proved to be what a group's nodes mean; empty if it is.

    Args:
        body: The nodes, whose outputs are the specification's results in order.
        spec: What a generator is given.
    """
    if not all(body.avals[v].size for v in body.outputs):
        return ""  # nothing is computed
    if wrong := _other_arrays(body, spec):
        return wrong
    names = _Names()
    nodes = _Nodes(body, names)
    try:
        if isinstance(spec, Nest):
            return _nest(body, spec, nodes, names)
        if isinstance(spec, Contract):
            return _product(body, spec, nodes, names)
        return doubt_single(body, spec, address_of)
    except _Unknown as e:
        return str(e)


def _other_arrays(body: Graph, spec: KernelSpec) -> str:
    """Whether a specification has other inputs or results than the group, as a text; empty if not."""
    if not isinstance(spec, Nest | Contract):
        return ""
    if len(spec.results) != len(body.outputs):
        return f"there are {len(spec.results)} results of {len(body.outputs)}"
    factors = [f for p in spec.parts for f in (p.left, p.right)] if isinstance(spec, Contract) else []
    reads: list[Operand | Factor] = [*spec.operands, *factors]
    missing = [x.source for x in reads if not 0 <= x.source < len(body.inputs)]
    loads = {int(e.value or 0) for e in walk(r.expression for r in spec.results) if e.op in ("load", "gather")}
    beyond = [k for k in loads if k >= len(spec.operands) + isinstance(spec, Contract)]
    return f"there is no input {missing[0]}" if missing else f"there is no operand {beyond[0]}" if beyond else ""


class _Names:
    """Leaves of canonical expressions: a number for each element of memory, each index, each element of a contraction."""

    def __init__(self) -> None:
        self.products: set[Expr] = set()  # leaves that are elements of contractions
        self._numbers: dict[Hashable, int] = {}
        self._positions: list[Affine] = []

    def leaf(self, dtype: str, key: Hashable) -> Expr:
        """The element that a key names."""
        return node("load", dtype, (), self._numbers.setdefault(key, len(self._numbers)))

    def element(self, source: int, stored: str, address: Affine | int) -> Expr:
        """The element of an input at an address, in elements; a complex one is two reals next to each other."""
        if stored in COMPLEX:
            at = affine(address) * 2
            return paired(Parts(*(self.element(source, COMPLEX[stored], at + part) for part in (0, 1))))
        return self.leaf(computed(stored), (source, stored, affine(address)))

    def position(self, x: Affine | int) -> Expr:
        """An index as a number."""
        x = affine(x)
        if not x.terms:
            return const(x.constant, "int64")
        key = ("position", x)
        number = self._numbers.get(key)
        if number is None:
            number = self._numbers[key] = len(self._positions)
            self._positions.append(x)
        return node("index", "int64", (), number)

    def number(self, e: Expr) -> Affine:
        """An int64 expression as an affine one; what it does not know is one unknown number."""
        if e.op == "index":
            return self._positions[int(e.value or 0)]
        if e.op == "const":
            return affine(int(e.value or 0))
        if e.op in ("add", "sub"):
            a, b = (self.number(x) for x in e.args)
            return a + b if e.op == "add" else a - b
        if e.op == "mul" and e.args[1].op == "const":  # where constants stand, see scalar.expr
            return self.number(e.args[0]) * int(e.args[1].value or 0)
        return value(e, int(str(e.value).split(":")[0])) if e.op == "bounded" else unknown(e)


def _rebuilt(e: Expr, args: tuple[Expr, ...], names: _Names) -> Expr:
    """A node on other operands, simplified where new operands allow it."""
    if e.op in ("select", "rarely") and args[1] is args[2]:
        return args[1]
    if e.op == "bitcast":
        return bitcast(args[0], e.dtype)
    if e.op in ("real", "imag") and args[0].op == "pair":
        return args[0].args[e.op == "imag"]
    known = [a.op for a in args if a.op in ("index", "const")]
    if e.dtype == "int64" and e.op in ("add", "sub", "mul") and ("index" in known or len(known) == len(args)):
        return names.position(names.number(node(e.op, e.dtype, args)))
    return e if args == e.args else node(e.op, e.dtype, args, e.value)


def _post_order(root: Expr, done: Mapping[Expr, Expr]) -> list[Expr]:
    """Nodes below a root that are not done, operands first; reductions without what they reduce."""
    out: list[Expr] = []
    seen: set[Expr] = set()
    stack = [(root, False)]
    while stack:
        e, ready = stack.pop()
        if ready:
            out.append(e)
        elif e not in seen and e not in done:
            seen.add(e)
            stack.append((e, True))
            if e.op != "reduce":
                stack.extend((a, False) for a in e.args)
    return out


Leaf = Callable[[Expr, tuple[Expr, ...], int], Expr | None]


def _substituted(
    root: Expr, leaf: Leaf, depth: int, sizes: Sequence[int], names: _Names, memo: dict[int, dict[Expr, Expr]] | None = None
) -> Expr:
    """An expression with its leaves replaced by ``leaf(e, operands, depth)``; reductions are labelled with the sizes they bind.

    ``memo`` keeps what is done at each depth, for further expressions of the same leaves.
    """
    memo = {} if memo is None else memo
    done = memo.setdefault(depth, {})
    for e in _post_order(root, done):
        if e.op == "reduce":
            inside = _substituted(e.args[0], leaf, depth + 1, sizes, names, memo)
            done[e] = node("reduce", e.dtype, (inside,), f"{e.value} of {list(sizes)}")
        else:
            args = tuple(done[a] for a in e.args)
            found = leaf(e, args, depth)
            done[e] = _rebuilt(e, args, names) if found is None else found
    return done[root]


def _bound(depth: int, number: int, size: int) -> Affine | int:
    """The position along axis ``number`` of those that a reduction at a nesting depth binds."""
    return variable(("bound", depth, number), size)


def _bounded(e: Expr, size: int, op: str, line: str) -> Expr:
    """An index into ``size`` places, counted from the front, and the operation and the line that its fault reports."""
    return node("bounded", "int64", (e,), f"{size}:{op}:{line}")


def _checked(n: Node, e: Expr, size: int) -> Expr:
    """An index that a node checks, if it does."""
    return e if n.op.indexes is None else _bounded(e, size, n.op.known_as or n.op.name, n.line or "")


# the nodes' side


Request = tuple[int, Index, int]
"""A value, an index of it, and how many reductions it is inside of."""


@dataclass(slots=True)
class _Derivation:
    """How a requested element follows from others."""

    needs: list[Request]
    make: Callable[[list[Expr]], Expr]


class _Nodes:
    """The elements of a body's values, by its nodes' own meaning."""

    def __init__(self, body: Graph, names: _Names) -> None:
        self.body, self.names, self.avals = body, names, body.avals
        self.made_by = {v: n for n in body.nodes for v in n.results}
        self.known: dict[Request, Expr] = {}

    def element(self, v: int, index: Index, depth: int = 0) -> Expr:
        """The element of a value at an index."""
        steps: dict[Request, _Derivation] = {}
        waiting: dict[int, dict[Request, None]] = {v: {(v, index, depth): None}}
        order: list[Request] = []
        for u in range(v, -1, -1):  # operands have smaller numbers
            for request in waiting.pop(u, ()):
                if request in self.known:
                    continue
                steps[request] = step = self._step(request)
                order.append(request)
                for need in step.needs:
                    waiting.setdefault(need[0], {})[need] = None
        for request in reversed(order):
            step = steps[request]
            self.known[request] = step.make([self.known[need] for need in step.needs])
        return self.known[v, index, depth]

    def _step(self, request: Request) -> _Derivation:
        v, index, depth = request
        n = self.made_by.get(v)
        if n is None:
            aval = self.avals[v]
            e = self.names.element(v, _stored(aval), flat(index, aval.shape))
            return _Derivation([], lambda _: e)
        if n.op is CONSTANT:
            number = self._number(n)
            return _Derivation([], lambda _: number)
        special = _contraction if n.op.kind == "contract" else _FORMS.get("" if n.op.access is None else n.op.access.form)
        if special is not None:
            return special(self, n, index, depth)
        if n.op.index_map is None:
            raise _Unknown(f"{n.op.name} has no index map")
        if is_reduction(n):
            return self._row(n, index, depth)
        where = self._indices(n, index, depth, v - n.first)
        if n.op.fusion == "move":
            return _Derivation([(n.inputs[0], where[0], depth)], lambda xs: xs[0])
        if n.op.access is not None:
            return _Derivation([(n.inputs[0], where[0], depth)], lambda xs: xs[0])
        if not is_elementwise(n):
            raise _Unknown(f"{n.op.name} has no scalar expression")
        operands = [self.avals[i] for i in n.inputs]
        needs = [(i, w, depth) for i, w in zip(n.inputs, where, strict=True)]
        return _Derivation(needs, lambda xs: element(n, xs, operands, self.names.products))

    def _indices(
        self, n: Node, index: Index, depth: int, slot: int = 0, along: Callable[[int], Affine | int] | None = None
    ) -> tuple[Index, ...]:  # fmt: skip
        """Where a node's operands are read for an element of its result."""

        def own(axis: int) -> Affine | int:
            return index[axis]

        def found(operand: int, where: Index, size: int) -> Affine:
            at = self.inside(n, n.inputs[operand], where, depth, size)
            return value(at, size) if at.op == "bounded" else unknown(at)

        assert n.op.index_map is not None
        shapes = [self.avals[i].shape for i in n.inputs]
        made: tuple[Index, ...] = n.op.index_map(Element(index, along or own, slot, found), shapes, **n.params)
        return made

    def inside(self, n: Node, v: int, where: Index, depth: int, size: int) -> Expr:
        """An element of an index tensor, counted from the front."""
        at = self.element(v, aligned(where, self.avals[v].shape), depth)
        return _checked(n, whole_number(at), size)

    def _number(self, n: Node) -> Expr:
        given = n.params["value"]
        if given.size != 1:
            raise _Unknown("a constant of several elements")
        dtype = computed(_stored(n.avals[0]))
        return constant(given.reshape(()).astype(dtype).item(), dtype)

    def _constant(self, v: int) -> Expr | None:
        """The number that a value is everywhere, if it is one of the program's."""
        n = self.made_by.get(v)
        while n is not None and n.op is not CONSTANT and n.op.fusion == "move" and len(n.inputs) == 1:
            n = self.made_by.get(n.inputs[0])
        return self._number(n) if n is not None and n.op is CONSTANT else None

    def _row(self, n: Node, index: Index, depth: int) -> _Derivation:
        """A reduction, or an operation on rows: its expression, of elements at each depth of its reductions."""
        operands = [self.avals[i] for i in n.inputs]
        shape = operands[0].shape
        axes = reduced_axes(n, len(shape))
        leaves = [
            self._constant(v) or load(PLACEHOLDER + i, computed(_stored(a)))
            for i, (v, a) in enumerate(zip(n.inputs, operands, strict=True))
        ]
        template = element(n, leaves, operands)
        needs: dict[Request, int] = {}

        def along(level: int) -> Callable[[int], Affine | int]:
            if level == depth:
                return lambda axis: index[axis]
            return lambda axis: _bound(level, axes.index(axis), shape[axis])

        def request(e: Expr, level: int) -> Request:
            i = int(e.value or 0) - PLACEHOLDER
            if level == depth and len(index) != len(shape):
                raise _Unknown(f"{n.op.name} reads elements outside of its reduction")
            return n.inputs[i], self._indices(n, index, level, 0, along(level))[i], level

        def collect(e: Expr, args: tuple[Expr, ...], level: int) -> Expr | None:
            if e.op == "load":
                needs.setdefault(request(e, level), len(needs))
            return None

        sizes = _sizes(shape, axes)
        _substituted(template, collect, depth, sizes, self.names)

        def make(found: list[Expr]) -> Expr:
            def leaf(e: Expr, args: tuple[Expr, ...], level: int) -> Expr | None:
                if e.op == "load":
                    return found[needs[request(e, level)]]
                return self.names.position(along(level)(int(e.value or 0))) if e.op == "index" else None

            return _substituted(template, leaf, depth, sizes, self.names)

        return _Derivation(list(needs), make)


def _sizes(shape: Sequence[int], axes: Sequence[int]) -> list[int]:
    return [shape[a] for a in axes]


def _stored(aval: Aval) -> str:
    if aval.dtype.name not in STORAGE and aval.dtype.name not in COMPLEX:
        raise _Unknown(f"no scalar expressions of {aval.dtype.name}")
    return aval.dtype.name


def _ravelled(nodes: _Nodes, n: Node, index: Index, depth: int) -> _Derivation:
    where = nodes._indices(n, index, depth)
    needs = [(v, w, depth) for v, w in zip(n.inputs, where, strict=True)]

    def make(xs: list[Expr]) -> Expr:
        out = const(n.params["offset"], "int64")
        for x, size, stride in zip(xs, n.params["sizes"], n.params["strides"], strict=True):
            out = out + _checked(n, whole_number(x), size) * stride
        return out

    return _Derivation(needs, make)


def _updated(nodes: _Nodes, n: Node, index: Index, depth: int) -> _Derivation:
    """One update for each row along the axis: where it falls, what the op makes of the element and the update."""
    axis, x, at = n.params["axis"], nodes.avals[n.inputs[0]], nodes.avals[n.inputs[1]]
    if at.shape[axis] != 1:
        raise _Unknown(f"{n.op.name} with several updates of one row")
    beside: Index = tuple(0 if a == axis else i for a, i in enumerate(index))
    place = nodes.names.position(index[axis])
    put = partial(_of(n), **{k: v for k, v in n.params.items() if k != "axis"})

    def make(xs: list[Expr]) -> Expr:
        size, here, there = x.shape[axis], _checked(n, whole_number(xs[1]), x.shape[axis]), place
        if size < 1 << 31 and BITS[COMPLEX.get(xs[0].dtype, xs[0].dtype)] <= 32:
            here, there = cast(here, "int32"), cast(there, "int32")
        return by_parts(lambda old, new: select(eq(there, here), put(old, new), old), xs[0], xs[2])

    return _Derivation([(n.inputs[0], index, depth), (n.inputs[1], beside, depth), (n.inputs[2], beside, depth)], make)


def _of(n: Node) -> Callable[..., Expr]:
    assert n.op.access is not None
    assert n.op.access.of is not None
    return n.op.access.of


def _random(nodes: _Nodes, n: Node, index: Index, depth: int) -> _Derivation:
    key = n.inputs[0]
    at = binary("add", nodes.names.position(flat(index, n.avals[0].shape)), const(n.params["offset"], "int64"))
    at = _rebuilt(at, at.args, nodes.names)

    def make(words: list[Expr]) -> Expr:
        made = _of(n)(words, at, **{k: v for k, v in n.params.items() if k not in ("shape", "offset")})
        return _substituted(made, lambda e, args, level: e if e.op in ("load", "index") else None, 0, (), nodes.names)

    return _Derivation([(key, (i,), depth) for i in range(4)], make)


def _contraction(nodes: _Nodes, n: Node, index: Index, depth: int) -> _Derivation:
    e = nodes.names.leaf(computed(_stored(n.avals[0])), ("contraction", n.first, tuple(map(affine, index))))
    nodes.names.products.add(e)
    return _Derivation([], lambda _: e)


_FORMS: dict[str, Callable[[_Nodes, Node, Index, int], _Derivation]] = {
    "position": _ravelled, "random": _random, "update": _updated,
}  # fmt: skip
"""Form of access → the element of an entry that is neither a scalar expression of one element of each operand nor an operand's
element."""


# the description's side


def _nest(body: Graph, d: Nest, nodes: _Nodes, names: _Names) -> str:
    position: Index = tuple(variable(("axis", a), size) for a, size in enumerate(d.domain))
    memo: dict[int, dict[Expr, Expr]] = {}
    kind = Map if not d.reduced else Row if d.reduced == (len(d.domain) - 1,) else Fold
    if type(d) is not kind:  # targets have a generator for each kind
        return f"a {type(d).__name__} over {d.domain}, reduced along {d.reduced}, is a {kind.__name__}"
    arrays: list[Operand | Result] = [*d.operands, *d.results]
    for x in arrays:
        if x.view.shape != d.domain:
            return f"an array is seen as {x.view.shape}, over {d.domain}"
    for r in d.operands:
        stored = body.inputs[r.source].dtype.name
        if r.dtype != COMPLEX.get(stored, stored):
            return f"input {r.source} is {body.inputs[r.source].dtype.name}, and is read as {r.dtype}"

    def expression(root: Expr, index: Index, depth: int, memo: dict[int, dict[Expr, Expr]] | None = None) -> Expr:
        """An expression at an index of the domain, inside of ``depth`` reductions along axes of it."""
        at: dict[int, Index] = {depth: index}

        def here(level: int) -> Index:
            if level not in at:
                at[level] = tuple(
                    _bound(level, d.reduced.index(a), d.domain[a]) if a in d.reduced else i for a, i in enumerate(index)
                )  # fmt: skip
            return at[level]

        def leaf(e: Expr, args: tuple[Expr, ...], level: int) -> Expr | None:
            if e.op in ("load", "gather"):
                r = d.operands[int(e.value or 0)]
                if e.dtype != computed(r.dtype):
                    raise _Unknown(f"an element of {r.dtype} is read as {e.dtype}")
                address = address_of(r.view, here(level))
                return names.element(r.source, r.dtype, address + names.number(args[0]) if args else address)
            if e.op == "index":
                given = str(e.value)
                if isinstance(e.value, str):
                    return names.position(linear_address(0, [int(s) for s in given.split(",") if s], here(level)))
                return names.position(here(level)[int(given)])
            if e.op == "bounded":
                size, check = (int(x) for x in str(e.value).split(":"))
                site = d.sites[check] if check < len(d.sites) else None
                if site is None or site.size != size:
                    return node("bounded", "int64", args, e.value)
                return _bounded(args[0], size, site.op, site.line)
            return None

        return _substituted(root, leaf, depth, _sizes(d.domain, d.reduced), names, memo)

    for number, (w, v) in enumerate(zip(d.results, body.outputs, strict=True)):
        aval = body.avals[v]
        where = f"result {number} ({aval})"
        if w.dtype != aval.dtype.name:
            return f"{where} is written as {w.dtype}"
        reduced = w.summed or d.reduced
        if not covers(w.view, d.domain, reduced, aval.shape):
            return f"{where} is not written once at every position of {d.domain} by {w.view}"
        if w.summed:
            inner: Index = tuple(
                _bound(1, w.summed.index(a), d.domain[a]) if a in w.summed else i for a, i in enumerate(position)
            )
            sizes = _sizes(d.domain, w.summed)
            got = node("reduce", w.expression.dtype, (expression(w.expression, inner, 1),), f"sum of {sizes}")
        else:
            got = expression(w.expression, position, 0, memo)
        if got is not nodes.element(v, unflattened(address_of(w.view, position), aval.shape)):
            return f"{where} is not proved to be {_made(body, v)}"
    return ""


def _made(body: Graph, v: int) -> str:
    n = next((n for n in body.nodes if v in n.results), None)
    return "an input" if n is None else f"that of {n.op.name}" + (f" ({n.line})" if n.line else "")


def _product(body: Graph, d: Contract, nodes: _Nodes, names: _Names) -> str:
    n = contraction_of(body)
    if not d.parts or (len(d.parts) > 1 and n.op.facts is None):
        return f"{n.op.name} has {len(d.parts)} parts"
    for part in d.parts:
        for factor in (part.left, part.right):
            given = body.inputs[factor.source].dtype.name
            if not factor.dtype == d.dtype == given:
                return f"input {factor.source} is {given}, and is read as {factor.dtype} for {d.dtype}"
    # targets may compute a convolution from its geometry in place of its parts, which are what is proved
    shapes = [nodes.avals[v].shape for v in n.inputs]
    if d.convolution != (geometry_of(n, shapes) if n.op.facts is not None else None):
        return f"the geometry is not that of {n.op.name}"
    if d.convolution is not None and d.convolution.parts(*n.inputs) != d.parts:
        return f"the geometry of {n.op.name} is not that of its parts"
    if n.op.facts is not None:
        found = doubt_convolution(n, shapes, d, address_of)
        if found or any((part.right.source, part.left.source) != n.inputs for part in d.parts):
            return found or f"{n.op.name} reads its operands in another order"
    if len(d.parts) > 1:
        result = Result(load(0, computed(d.dtype)), n.avals[0].dtype.name, d.parts[0].result)
        plain = d.results == (result,)
        return "" if plain and not d.operands else f"the result of several parts is {n.op.name} itself"
    (part,) = d.parts
    batch: Index = tuple(variable(("batch", i), size) for i, size in enumerate(part.batch))
    row, column, k = variable("row", part.m), variable("column", part.n), variable("k", part.k)
    position = *batch, row, column
    shape = n.avals[0].shape
    if part.result.shape != part.domain or prod(part.domain) != prod(shape):
        return f"{part.domain} is not the {shape} of {n.op.name}"

    def read(x: Operand | Factor, index: Index) -> Expr:
        stored = body.inputs[x.source].dtype.name
        if x.dtype != COMPLEX.get(stored, stored):
            raise _Unknown(f"input {x.source} is {body.inputs[x.source].dtype.name}, and is read as {x.dtype}")
        wanted = [(i.terms and i.range[1] + 1) or 1 for i in map(affine, index)]
        if any(a not in (1, b) for a, b in zip(x.view.shape, wanted, strict=True)):
            raise _Unknown(f"an array of {x.view.shape} for an index of {wanted}")
        return names.element(x.source, x.dtype, address_of(x.view, index))

    own = unflattened(address_of(part.result, position), shape)
    if n.op.index_map is not None:
        x, y = n.inputs
        operands = n.op.index_map(Element(own, lambda axis: k), [nodes.avals[v].shape for v in n.inputs], **n.params)
        for v, index, factor, i in ((x, operands[0], part.left, row), (y, operands[1], part.right, column)):
            if read(factor, (*batch, i, k)) is not nodes.element(v, index):
                return f"an operand of {n.op.name} is not proved to be what is read of input {factor.source}"
    product = nodes.element(n.first, own)
    memo: dict[int, dict[Expr, Expr]] = {}

    def leaf(e: Expr, args: tuple[Expr, ...], level: int) -> Expr | None:
        if e.op == "load":
            number = int(e.value or 0)
            return product if number == 0 else read(d.operands[number - 1], position)
        if e.op in ("index", "gather", "reduce", "bounded"):
            raise _Unknown(f"{e.op} after a contraction")
        return None

    for number, (r, v) in enumerate(zip(d.results, body.outputs, strict=True)):
        aval = body.avals[v]
        where = f"result {number} ({aval})"
        if r.dtype != aval.dtype.name or r.view.shape != part.domain or not covers(r.view, part.domain, (), aval.shape):
            return f"{where} is not written once at every position"
        index = unflattened(address_of(r.view, position), aval.shape)
        if _substituted(r.expression, leaf, 0, (), names, memo) is not nodes.element(v, index):
            return f"{where} is not proved to be {_made(body, v)}"
    return ""
