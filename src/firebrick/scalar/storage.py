"""Storage dtypes: floats of 16 and 8 bits, and their conversions from and to float32 as in IEEE 754, in the scalar IR.

Conversions round to nearest even. Targets with instructions for conversions use these, with the same results except for the
payload of a NaN.
"""

from __future__ import annotations

from firebrick.scalar.expr import COMPLEX, Expr, bitcast, cast, const, ne, select

HALVES = ("float16", "bfloat16")
STORAGE = ("bool", "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64", *HALVES, "float32", "float64")


def computed(dtype: str) -> str:
    """The dtype that a storage or complex dtype is computed in: float32 for half precision, else itself."""
    if dtype not in STORAGE and dtype not in COMPLEX:
        raise TypeError(f"kernels read and write {', '.join((*STORAGE, *COMPLEX))}. Received: {dtype!r}")
    return "float32" if dtype in HALVES else dtype


def decode(bits: Expr, dtype: str) -> Expr:
    """uint16 ``bits`` of a float16 or bfloat16 as float32, exactly."""
    wide = cast(bits, "uint32")
    if dtype == "bfloat16":
        return bitcast(wide << 16, "float32")
    # The exponent field is too small by the difference of the biases, 112. The multiplication corrects it, of denormals too.
    value = bitcast((wide & 0x7FFF) << 13, "float32") * 2.0**112
    special = bitcast(bitcast(value, "uint32") | 0x7F800000, "float32")
    magnitude = select(value >= 65536.0, special, value)
    return bitcast(bitcast(magnitude, "uint32") | ((wide & 0x8000) << 16), "float32")


def encode(x: Expr, dtype: str) -> Expr:
    """float32 ``x`` rounded to a float16 or bfloat16, as uint16 bits."""
    bits = bitcast(x, "uint32")
    if dtype == "bfloat16":
        rounded = (bits + ((bits >> 16) & 1) + 0x7FFF) >> 16
        return cast(select(ne(x, x), (bits >> 16) | 0x40, rounded), "uint16")
    magnitude = bits & 0x7FFFFFFF
    # normal: the exponent is reduced by 112, and half a unit in the last place is added, or less if the last place is even
    normal = (magnitude - (112 << 23) + 0xFFF + ((magnitude >> 13) & 1)) >> 13
    # denormal: the last place of float32 numbers near 1/2 is that of float16 denormals, so adding 1/2 rounds
    denormal = bitcast(bitcast(magnitude, "float32") + 0.5, "uint32") - 0x3F000000
    # 65520 and above round to infinity
    infinite_or_nan = select(magnitude > 0x7F800000, const(0x7E00, "uint32"), const(0x7C00, "uint32"))
    out = select(magnitude < 0x38800000, denormal, select(magnitude >= 0x477FF000, infinite_or_nan, normal))
    return cast(out | ((bits >> 16) & 0x8000), "uint16")


def rounded(x: Expr, dtype: str) -> Expr:
    """float32 ``x`` rounded to the nearest number of a half-precision dtype."""
    return decode(encode(x, dtype), dtype)
