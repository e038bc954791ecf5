"""The names that torchvision gives to the weights of a ResNet, as those of ``ResNet`` here."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from firebrick.core.errors import ConfigError

_RULES = (
    (re.compile(r"conv1\.(\w+)"), r"conv.\1"),
    (re.compile(r"bn1\.(\w+)"), r"norm.\1"),
    (re.compile(r"fc\.(\w+)"), r"head.\1"),
    (re.compile(r"layer([1-9]\d*)\.(\d+)\.conv([12])\.(\w+)"), r"stages.{stage}.layers.\2.conv\3.\4"),
    (re.compile(r"layer([1-9]\d*)\.(\d+)\.bn([12])\.(\w+)"), r"stages.{stage}.layers.\2.norm\3.\4"),
    (re.compile(r"layer([1-9]\d*)\.(\d+)\.downsample\.([01])\.(\w+)"), r"stages.{stage}.layers.\2.shortcut.layers.\3.\4"),
)


def from_torchvision(state: Mapping[str, Any]) -> dict[str, Any]:
    """The weights of a ResNet of torchvision under the names that ``ResNet`` has for them.

    A name that torchvision's ResNets of basic blocks do not have stays as it is, so that ``load_state_dict`` reports it.

    Args:
        state: Values by torchvision's names, such as ``torchvision.models.resnet18(weights="DEFAULT").state_dict()``.

    Returns:
        The same values for ``load_state_dict`` of ``resnet18(classes=1000, large_images=True)``, or of a model with
        ``large_images=False`` if the weights are those of a stem of 3 x 3.

    Raises:
        ConfigError: The state is no mapping from names.

    Example:
        >>> import firebrick as fb
        >>> list(fb.models.from_torchvision({"conv1.weight": 1, "layer2.0.downsample.1.bias": 2}))
        ['conv.weight', 'stages.1.layers.0.shortcut.layers.1.bias']
    """
    names: Any = state
    if not isinstance(names, Mapping) or not all(isinstance(name, str) for name in names):
        raise ConfigError("from_torchvision takes a mapping from names to values", type(state).__name__, "pass a state_dict()")
    return {_renamed(name): value for name, value in state.items()}


def _renamed(name: str) -> str:
    for pattern, to in _RULES:
        if (found := pattern.fullmatch(name)) is not None:
            stage = str(int(found[1]) - 1) if "{stage}" in to else ""
            return found.expand(to.replace("{stage}", stage))
    return name
