"""All rules, by name and by family."""

from differential import elementwise, movement, products, reductions
from differential.rule import FAMILIES, RULES, Params, Rule, Shape, reduction

__all__ = ["FAMILIES", "RULES", "Params", "Rule", "Shape", "elementwise", "movement", "products", "reduction", "reductions"]
