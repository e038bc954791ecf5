"""Wrong kernels, and wrong calls of kernels. Each case raises an error; ``# here`` marks the line at fault."""
# ruff: noqa: B007, F821, F841, UP037

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

import firebrick as fb
from firebrick.core.config import config

K = fb.kernel
F, I32, U8 = fb.float32, fb.int32, fb.uint8
CASES: dict[str, Callable[[], Any]] = {}


def case(name: str) -> Callable[[Callable[[], Any]], Callable[[], Any]]:
    """Register a wrong kernel."""

    def add(make: Callable[[], Any]) -> Callable[[], Any]:
        assert name not in CASES
        CASES[name] = make
        return make

    return add


def floats(*shape: int) -> Any:
    """A float32 tensor."""
    return fb.ones(shape or (5,))


def integers() -> Any:
    """An int32 tensor."""
    return fb.arange(5, dtype=fb.int32)


# names and parameters


@case("a name that is not defined")
def _() -> Any:
    @K
    def f(x: K.In[F, "n"], out: K.Out[F, "n"]):
        i = K.index()
        out[i] = x[i] * scale  # here

    return f(floats())


@case("a name of a local variable, used before it has a value")
def _() -> Any:
    @K
    def f(x: K.In[F, "n"], out: K.Out[F, "n"]):
        i = K.index()
        out[i] = total + x[i]  # here
        total = x[i]

    return f(floats())


@case("a variable without a value on one path")
def _() -> Any:
    @K
    def f(x: K.In[F, "n"], out: K.Out[F, "n"]):
        i = K.index()
        if x[i] > 0:
            v = x[i]
        out[i] = v  # here

    return f(floats())


@case("a variable that only a loop assigns to")
def _() -> Any:
    @K
    def f(x: K.In[F, "n"], out: K.Out[F, "n"]):
        i = K.index()
        for j in range(x.shape[0]):
            v = x[j]
        out[i] = v  # here

    return f(floats())


@case("the counter of a loop after the loop")
def _() -> Any:
    @K
    def f(x: K.In[F, "n"], out: K.Out[F, "n"]):
        i = K.index()
        total = 0.0
        for j in range(3):
            total += x[i]
        out[i] = total * F(j)  # here

    return f(floats())


@case("an assignment to the counter of a loop")
def _() -> Any:
    @K
    def f(x: K.In[F, "n"], out: K.Out[F, "n"]):
        i = K.index()
        for j in range(3):
            j = j + 1  # here
            out[i] = x[i]

    return f(floats())


@case("the counter of an outer loop")
def _() -> Any:
    @K
    def f(x: K.In[F, "n"], out: K.Out[F, "n"]):
        i = K.index()
        total = 0
        for j in range(3):
            for j in range(2):  # here
                total += j
            total *= j
        out[i] = F(total)

    return f(floats())


@case("a counter that is a variable too")
def _() -> Any:
    @K
    def f(x: K.In[F, "n"], out: K.Out[F, "n"]):
        i = K.index()
        j = 2
        for j in (1, 2):  # here
            out[i] = x[i]
        out[j] = x[j]

    return f(floats())


@case("tuples of different lengths by a condition")
def _() -> Any:
    @K
    def f(x: K.In[F, "n"], out: K.Out[F, "n"]):
        i = K.index()
        a, b = (x[i], 1.0) if x[i] > 0 else (x[i], 1.0, 2.0)  # here
        out[i] = a + b

    return f(floats())


@case("a bool beside floats")
def _() -> Any:
    @K
    def f(x: K.In[F, "n"], out: K.Out[F, "n"]):
        i = K.index()
        out[i] = x[i] * True  # here

    return f(floats())


@case("an assignment to an array")
def _() -> Any:
    @K
    def f(x: K.In[F, "n"], out: K.Out[F, "n"]):
        i = K.index()
        out = x[i]  # here

    return f(floats())


@case("a parameter without annotation")
def _() -> Any:
    @K  # here
    def f(x, out: K.Out[F, "n"]):
        out[K.index()] = x[K.index()]

    return f(floats())


@case("a parameter annotated with str")
def _() -> Any:
    @K  # here
    def f(x: str, n: int, out: K.Out[F, "n"]):
        out[K.index()] = 1

    return f("a", 3)


@case("a size that no argument has")
def _() -> Any:
    @K  # here
    def f(x: K.In[F, "n"], out: K.Out[F, "n, k"]):
        i, j = K.index()
        out[i, j] = x[i]

    return f(floats())


@case("no result")
def _() -> Any:
    @K  # here
    def f(x: K.In[F, "n"]):
        x[K.index()]

    return f(floats())


@case("a default array")
def _() -> Any:
    @K  # here
    def f(x: K.In[F, "n"] = None, *, out: K.Out[F, "n"]):
        out[K.index()] = x[K.index()]

    return f(floats())


@case("any number of parameters")
def _() -> Any:
    @K  # here
    def f(*x: K.In[F, "n"], out: K.Out[F, "n"]):
        out[K.index()] = x[0][K.index()]

    return f(floats())


@case("a size that is text of something else")
def _() -> Any:
    @K
    def f(x: K.In[F, "n"], out: K.Out[F, "len(x)"]):
        out[K.index()] = x[K.index()]

    return f(floats())


@case("a result that is not written")
def _() -> Any:
    @K
    def f(x: K.In[F, "n"], out: K.Out[F, "n"], other: K.Out[F, "n"]):  # here
        out[K.index()] = x[K.index()]

    return f(floats())


# dtypes


@case("int32 and float32")
def _() -> Any:
    @K
    def f(x: K.In[F, "n"], k: K.In[I32, "n"], out: K.Out[F, "n"]):
        i = K.index()
        out[i] = x[i] * k[i]  # here

    return f(floats(), integers())


@case("a float in an array of integers")
def _() -> Any:
    @K
    def f(x: K.In[F, "n"], out: K.Out[I32, "n"]):
        i = K.index()
        out[i] = x[i]  # here

    return f(floats())


@case("an index in an array of int32")
def _() -> Any:
    @K
    def f(x: K.In[F, "n"], out: K.Out[I32, "n"]):
        i = K.index()
        out[i] = i  # here

    return f(floats())


@case("a variable of two dtypes")
def _() -> Any:
    @K
    def f(x: K.In[F, "n"], k: K.In[I32, "n"], out: K.Out[F, "n"]):
        i = K.index()
        v = x[i]
        if v > 0:
            v = k[i]  # here
        out[i] = v

    return f(floats(), integers())


@case("a float literal beside integers")
def _() -> Any:
    @K
    def f(k: K.In[I32, "n"], out: K.Out[I32, "n"]):
        i = K.index()
        out[i] = k[i] * 0.5  # here

    return f(integers())


@case("a literal outside of the dtype")
def _() -> Any:
    @K
    def f(k: K.In[U8, "n"], out: K.Out[U8, "n"]):
        i = K.index()
        out[i] = k[i] + 300  # here

    return f(fb.ones(3, dtype=U8))


@case("a literal outside of the dtype of an element")
def _() -> Any:
    @K
    def f(k: K.In[U8, "n"], out: K.Out[U8, "n"]):
        i = K.index()
        out[i] = 300 if k[i] > 3 else 0  # here

    return f(fb.ones(3, dtype=U8))


@case("a quotient of integers")
def _() -> Any:
    @K
    def f(k: K.In[I32, "n"], out: K.Out[F, "n"]):
        i = K.index()
        out[i] = k[i] / 2  # here

    return f(integers())


@case("a sum of conditions")
def _() -> Any:
    @K
    def f(x: K.In[F, "n"], out: K.Out[I32, "n"]):
        i = K.index()
        out[i] = (x[i] > 0) + (x[i] > 1)  # here

    return f(floats())


@case("a square root of an integer")
def _() -> Any:
    @K
    def f(k: K.In[I32, "n"], out: K.Out[F, "n"]):
        i = K.index()
        out[i] = fb.sqrt(k[i])  # here

    return f(integers())


# conditions and indices


@case("a number as a condition")
def _() -> Any:
    @K
    def f(k: K.In[I32, "n"], out: K.Out[I32, "n"]):
        i = K.index()
        v = k[i]
        while v:  # here
            v //= 2
        out[i] = v

    return f(integers())


@case("an array as a condition")
def _() -> Any:
    @K
    def f(x: K.In[F, "n"], out: K.Out[F, "n"]):
        i = K.index()
        if x > 0:  # here
            out[i] = 1.0
        else:
            out[i] = 0.0

    return f(floats())


@case("or between numbers")
def _() -> Any:
    @K
    def f(x: K.In[F, "n"], out: K.Out[F, "n"]):
        i = K.index()
        out[i] = x[i] or 1.0  # here

    return f(floats())


@case("an array that is None")
def _() -> Any:
    @K
    def f(x: K.In[F, "n"], out: K.Out[F, "n"]):
        i = K.index()
        out[i] = 1.0 if x is None else x[i]  # here

    return f(floats())


@case("a slice")
def _() -> Any:
    @K
    def f(x: K.In[F, "n, m"], out: K.Out[F, "n"]):
        i = K.index()
        out[i] = x[i, :]  # here

    return f(floats(2, 3))


@case("a negative index")
def _() -> Any:
    @K
    def f(x: K.In[F, "n"], out: K.Out[F, "n"]):
        i = K.index()
        out[i] = x[-1]  # here

    return f(floats())


@case("too few indices")
def _() -> Any:
    @K
    def f(x: K.In[F, "n, m"], out: K.Out[F, "n"]):
        i = K.index()
        out[i] = x[i]  # here

    return f(floats(2, 3))


@case("a float as an index")
def _() -> Any:
    @K
    def f(x: K.In[F, "n"], out: K.Out[F, "n"]):
        i = K.index()
        out[i] = x[x[i]]  # here

    return f(floats())


@case("a constant index outside of a constant size")
def _() -> Any:
    @K
    def f(x: K.In[F, "4"], out: K.Out[F, "4"]):
        i = K.index()
        out[i] = x[4]  # here

    return f(floats(4))


@case("an axis that the grid does not have")
def _() -> Any:
    @K
    def f(x: K.In[F, "n"], out: K.Out[F, "n"]):
        i = K.index(1)  # here
        out[i] = x[i]

    return f(floats())


@case("one name for the indices of two axes")
def _() -> Any:
    @K
    def f(x: K.In[F, "n, m"], out: K.Out[F, "n, m"]):
        i = K.index()
        out[i] = x[i] + i  # here

    return f(floats(2, 3))


@case("two names for three values")
def _() -> Any:
    @K
    def f(x: K.In[F, "n, m, k"], out: K.Out[F, "n, m, k"]):
        i, j = K.index()  # here
        out[i, j, 0] = x[i, j, 0]

    return f(floats(2, 3, 4))


@case("an element of a number")
def _() -> Any:
    @K
    def f(x: K.In[F, "n"], out: K.Out[F, "n"]):
        i = K.index()
        v = x[i]
        out[i] = v[0]  # here

    return f(floats())


# what is assigned and returned


@case("an assignment to an argument's element")
def _() -> Any:
    @K
    def f(x: K.In[F, "n"], out: K.Out[F, "n"]):
        i = K.index()
        x[i] = 0.0  # here
        out[i] = 1.0

    return f(floats())


@case("an element of a result that has no value")
def _() -> Any:
    @K
    def f(x: K.In[F, "n"], out: K.Out[F, "n"]):
        i = K.index()
        out[i] += x[i]  # here

    return f(floats())


@case("a value that is returned")
def _() -> Any:
    @K
    def f(x: K.In[F, "n"], out: K.Out[F, "n"]):
        i = K.index()
        return x[i]  # here

    return f(floats())


@case("a variable with an annotation")
def _() -> Any:
    @K
    def f(x: K.In[F, "n"], out: K.Out[F, "n"]):
        i = K.index()
        v: float = x[i]  # here
        out[i] = v

    return f(floats())


@case("an expression that is not used")
def _() -> Any:
    @K
    def f(x: K.In[F, "n"], out: K.Out[F, "n"]):
        i = K.index()
        x[i] + 1  # here
        out[i] = x[i]

    return f(floats())


# Python that the language does not have


@case("a list comprehension")
def _() -> Any:
    @K
    def f(x: K.In[F, "n"], out: K.Out[F, "n"]):
        i = K.index()
        near = [x[j] for j in range(3)]  # here
        out[i] = max(near)

    return f(floats())


@case("a text with values")
def _() -> Any:
    @K
    def f(x: K.In[F, "n"], out: K.Out[F, "n"]):
        i = K.index()
        assert x[i] > 0, f"item {i}"  # here
        out[i] = x[i]

    return f(floats())


@case("printing")
def _() -> Any:
    @K
    def f(x: K.In[F, "n"], out: K.Out[F, "n"]):
        i = K.index()
        print(x[i])  # here
        out[i] = x[i]

    return f(floats())


@case("a try")
def _() -> Any:
    @K
    def f(x: K.In[F, "n"], out: K.Out[F, "n"]):
        i = K.index()
        try:  # here
            out[i] = x[i]
        except IndexError:
            out[i] = 0.0

    return f(floats())


@case("an exception that is raised")
def _() -> Any:
    @K
    def f(x: K.In[F, "n"], out: K.Out[F, "n"]):
        i = K.index()
        if x[i] < 0:
            raise ValueError("negative")  # here
        out[i] = x[i]

    return f(floats())


@case("an import")
def _() -> Any:
    @K
    def f(x: K.In[F, "n"], out: K.Out[F, "n"]):
        import math  # here

        out[K.index()] = math.sin(x[K.index()])

    return f(floats())


@case("a function in a kernel")
def _() -> Any:
    @K
    def f(x: K.In[F, "n"], out: K.Out[F, "n"]):
        def g(v):  # here
            return v + 1

        out[K.index()] = g(x[K.index()])

    return f(floats())


@case("a loop over the elements of an array")
def _() -> Any:
    @K
    def f(x: K.In[F, "n"], out: K.Out[F, "n"]):
        total = 0.0
        for v in x:  # here
            total += v
        out[K.index()] = total

    return f(floats())


@case("a loop with else")
def _() -> Any:
    @K
    def f(x: K.In[F, "n"], out: K.Out[F, "n"]):
        i = K.index()
        for j in range(3):  # here
            if x[j] > 0:
                break
        else:
            out[i] = 0.0

    return f(floats())


@case("a product of matrices")
def _() -> Any:
    @K
    def f(x: K.In[F, "n"], out: K.Out[F, "n"]):
        i = K.index()
        out[i] = x @ x  # here

    return f(floats())


@case("a step that is not a constant")
def _() -> Any:
    @K
    def f(x: K.In[F, "n"], step: int, out: K.Out[F, "n"]):
        i = K.index()
        total = 0.0
        for j in range(0, x.shape[0], step):  # here
            total += x[j]
        out[i] = total

    return f(floats(), 2)


@case("a number that is not a constant, as a size of registers")
def _() -> Any:
    @K
    def f(x: K.In[F, "n"], k: int, out: K.Out[F, "n"]):
        i = K.index()
        r = K.registers(0.0, k)  # here
        out[i] = r[0]

    return f(floats(), 2)


# functions


@case("a function of NumPy")
def _() -> Any:
    @K
    def f(x: K.In[F, "n"], out: K.Out[F, "n"]):
        i = K.index()
        out[i] = np.sin(x[i])  # here

    return f(floats())


@case("a function of whole tensors")
def _() -> Any:
    @K
    def f(x: K.In[F, "n"], out: K.Out[F, "n"]):
        i = K.index()
        out[i] = fb.sum(x)  # here

    return f(floats())


def plain(v: Any) -> Any:
    """A function that is not decorated."""
    return v + 1


@case("a Python function that is not decorated")
def _() -> Any:
    @K
    def f(x: K.In[F, "n"], out: K.Out[F, "n"]):
        i = K.index()
        out[i] = plain(x[i])  # here

    return f(floats())


@K.function
def factorial(n):
    """A function that calls itself."""
    return 1 if n < 2 else n * factorial(n - 1)  # here


@case("a function that calls itself")
def _() -> Any:
    @K
    def f(k: K.In[I32, "n"], out: K.Out[I32, "n"]):
        i = K.index()
        out[i] = factorial(k[i])

    return f(integers())


@K.function
def sign(v):
    """A function that returns on one path."""
    if v > 0:
        return 1.0


@case("a function without a value on one path")
def _() -> Any:
    @K
    def f(x: K.In[F, "n"], out: K.Out[F, "n"]):
        i = K.index()
        out[i] = sign(x[i])

    return f(floats())


@case("a function with an argument too many")
def _() -> Any:
    @K
    def f(x: K.In[F, "n"], out: K.Out[F, "n"]):
        i = K.index()
        out[i] = sign(x[i], 1)  # here

    return f(floats())


@case("an operation with an operand too many")
def _() -> Any:
    @K
    def f(x: K.In[F, "n"], out: K.Out[F, "n"]):
        i = K.index()
        out[i] = fb.exp(x[i], 2)  # here

    return f(floats())


@case("a lambda expression")
def _() -> Any:
    return K(lambda x, out: None)  # here


@case("a function without text")
def _() -> Any:
    names: dict[str, Any] = {"K": K, "F": F}
    exec('@K\ndef f(x: K.In[F, "n"], out: K.Out[F, "n"]):\n    out[K.index()] = x[K.index()]', names)
    return names["f"](floats())


@case("a class")
def _() -> Any:
    return K(int)


# groups


@case("a shared array without groups")
def _() -> Any:
    @K
    def f(x: K.In[F, "n"], out: K.Out[F, "n"]):
        s = K.shared(F, 64)  # here
        out[K.index()] = s[0]

    return f(floats())


@case("a shared array in a branch")
def _() -> Any:
    @K(group=64, grid="1")
    def f(x: K.In[F, "n"], out: K.Out[F, "n"]):
        if x.shape[0] > 3:
            s = K.shared(F, 64)  # here
            s[K.lane()] = 0.0
            out[0] = 1.0

    return f(floats())


@case("a barrier that some items do not reach")
def _() -> Any:
    @K(group=64, grid="1")
    def f(x: K.In[F, "n"], out: K.Out[F, "n"]):
        if K.lane() < 7:
            K.barrier()  # here
        out[0] = 1.0

    return f(floats())


@case("a barrier after a return of some items")
def _() -> Any:
    @K(group=64, grid="1")
    def f(x: K.In[F, "n"], out: K.Out[F, "n"]):
        if K.lane() >= x.shape[0]:
            return
        out[K.lane()] = 1.0
        K.barrier()  # here

    return f(floats())


@case("a barrier in a loop whose end depends on the item")
def _() -> Any:
    @K(group=64, grid="1")
    def f(x: K.In[F, "n"], out: K.Out[F, "n"]):
        for j in range(K.lane()):
            K.barrier()  # here
        out[0] = 1.0

    return f(floats())


@case("a group of too many items")
def _() -> Any:
    @K(group=4096)
    def f(x: K.In[F, "n"], out: K.Out[F, "n"]):  # here
        out[K.index()] = 1.0

    return f(floats())


@case("a group by the name of no constant")
def _() -> Any:
    @K(group="n")
    def f(x: K.In[F, "n"], out: K.Out[F, "n"]):  # here
        out[K.index()] = 1.0

    return f(floats())


@case("an atomic sum of floats")
def _() -> Any:
    @K(grid="n")
    def f(x: K.In[F, "n"], out: K.Out[F, "1", 0]):
        K.atomic_add(out, 0, x[K.index()])  # here

    return f(floats())


@case("the value before an atomic operation")
def _() -> Any:
    @K(grid="n")
    def f(x: K.In[F, "n"], out: K.Out[F, "n"], count: K.Out[I32, "1", 0]):
        at = K.atomic_add(count, 0, 1)  # here
        out[at] = x[K.index()]

    return f(floats())


@case("an atomic operation on bytes")
def _() -> Any:
    @K(grid="n")
    def f(x: K.In[U8, "n"], out: K.Out[U8, "1", 0]):
        K.atomic_add(out, 0, x[K.index()])  # here

    return f(fb.ones(3, dtype=U8))


@case("an atomic operation on a result without a first value")
def _() -> Any:
    @K(grid="n")
    def f(x: K.In[I32, "n"], out: K.Out[I32, "1"]):
        K.atomic_add(out, 0, x[K.index()])  # here

    return f(integers())


@case("a call outside of a kernel")
def _() -> Any:
    return K.index()


# calls


@K
def axpy(a: float, x: K.In[F, "n"], y: K.In[F, "n"], out: K.Out[F, "n"]):
    """A correct kernel."""
    i = K.index()
    out[i] = a * x[i] + y[i]


@case("a call without an argument")
def _() -> Any:
    return axpy(1.0, floats())


@case("a call with an argument too many")
def _() -> Any:
    return axpy(1.0, floats(), floats(), floats())


@case("a call with an unknown argument")
def _() -> Any:
    return axpy(1.0, floats(), z=floats())


@case("a call with a result")
def _() -> Any:
    return axpy(1.0, floats(), floats(), out=floats())


@case("a call with a NumPy array")
def _() -> Any:
    return axpy(1.0, np.ones(3, np.float32), floats(3))


@case("a call with another dtype")
def _() -> Any:
    return axpy(1.0, floats(), integers())


@case("a call with sizes that disagree")
def _() -> Any:
    return axpy(1.0, floats(5), floats(6))


@case("a call with an axis too many")
def _() -> Any:
    return axpy(1.0, floats(5), floats(5, 1))


@case("a call with tensors on two devices")
def _() -> Any:
    return axpy(1.0, floats(5), fb.ones(5, device="numpy"))


@case("a call with a text for a number")
def _() -> Any:
    return axpy("1", floats(5), floats(5))


@case("a call with a tensor for a constant")
def _() -> Any:
    @K
    def f(x: K.In[F, "n"], k: K.Constant[int], out: K.Out[F, "n"]):
        out[K.index()] = x[K.index()] * k

    return f(floats(), fb.asarray(3))


@case("a call with a float for a number of integers")
def _() -> Any:
    @K
    def f(x: K.In[F, "n"], k: int, out: K.Out[F, "n"]):
        out[K.index()] = x[K.index()] * F(k)

    return f(floats(), 2.5)


@case("a result of negative size")
def _() -> Any:
    @K
    def f(x: K.In[F, "n"], out: K.Out[F, "n - 2"]):
        out[K.index()] = x[K.index()]

    return f(floats(1))


# while it runs


@case("an index outside of an array")
def _() -> Any:
    @K
    def f(x: K.In[F, "n"], out: K.Out[F, "n"]):
        i = K.index()
        out[i] = x[i + 2]  # here

    return f(floats()).tolist()


@case("an assertion that is false")
def _() -> Any:
    @K
    def f(x: K.In[F, "n"], out: K.Out[F, "n"]):
        i = K.index()
        assert x[i] > 1, "x is above 1"  # here
        out[i] = x[i]

    return f(floats()).tolist()


@case("a loop of too many rounds")
def _() -> Any:
    @K
    def f(x: K.In[F, "n"], out: K.Out[F, "n"], many: int):
        v = x[K.index()]
        for _ in range(3):
            v = v + 1.0
        for _ in range(many):  # here
            v = v * 2.0
        out[K.index()] = v

    return f(floats(), 2**62).tolist()


@case("a loop that does not end")
def _() -> Any:
    @K
    def f(x: K.In[F, "n"], out: K.Out[F, "n"]):
        v = x[K.index()]
        while v > 0:  # here
            v = v * 2
        out[K.index()] = v

    with config.scope(kernel_loop_limit=1000):
        return f(floats()).tolist()
