"""Pooling layers over one to three axes."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Generic, Literal, overload

from firebrick.core.errors import ShapeError
from firebrick.core.tensor import Tensor
from firebrick.functions import pooling
from firebrick.functions.convolution import Sizes, padding_of, per_axis
from firebrick.nn.module import Module

if TYPE_CHECKING:
    from typing_extensions import TypeVar  # whose variables have defaults

    R = TypeVar("R", default=Tensor)
else:
    from typing import TypeVar

    R = TypeVar("R")


class _Pool(Module):
    """What max and average pooling share: their settings, checked once."""

    _rank = 0

    def __init__(self, kernel: Sizes, stride: Sizes | None, padding: Any, **settings: Any) -> None:
        name, rank = type(self).__name__, self._rank
        self.kernel = per_axis(name, "kernel", kernel, rank)
        self.stride = self.kernel if stride is None else per_axis(name, "stride", stride, rank)
        self.padding = padding
        if isinstance(padding, str):
            raise ShapeError(f"{name}: padding is ints or pairs", repr(padding), "give the padding in numbers")
        padding_of(name, padding, self.kernel, self.stride, (1,) * rank)
        if "dilation" in settings:
            settings["dilation"] = per_axis(name, "dilation", settings["dilation"], rank)
        self.settings = settings

    def describe(self) -> str:
        ones = (1,) * self._rank
        usual = {"padding": 0, "dilation": ones, "ceil_mode": False, "return_indices": False, "count_include_pad": True}
        more = {"padding": self.padding, **self.settings}
        return f"{self.kernel}, stride={self.stride}" + "".join(f", {n}={v!r}" for n, v in more.items() if v != usual[n])


class _AdaptivePool(Module):
    """What adaptive pooling shares: the size of its result."""

    _rank = 0

    def __init__(self, size: Any, **settings: Any) -> None:
        name, rank = type(self).__name__, self._rank
        each = tuple(size) if isinstance(size, (tuple, list)) else (size,) * rank
        per_axis(name, "size", tuple(1 if n is None else n for n in each), rank)
        self.size, self.settings = size, settings

    def describe(self) -> str:
        return f"{self.size}" + "".join(f", {n}={v!r}" for n, v in self.settings.items() if v)


class MaxPool1d(_Pool, Generic[R]):
    """The largest value of each window of signals; arguments as for ``fb.max_pool1d``.

    Args:
        kernel: Window size, an int.
        stride: Step between windows; the window size by default.
        padding: Padding, which is never a maximum.
        dilation: Step between the elements of a window.
        ceil_mode: Whether a last window that sticks out counts.
        return_indices: Whether to return where the maxima are as well.

    Example:
        >>> import firebrick as fb
        >>> fb.nn.MaxPool1d(2)(fb.ones((1, 3, 8))).shape
        (1, 3, 4)
    """

    _rank = 1

    @overload
    def __init__(
        self: MaxPool1d[Tensor], kernel: Sizes, stride: Sizes | None = None, padding: Any = 0,
        dilation: Sizes = 1, *, ceil_mode: bool = False, return_indices: Literal[False] = False,
    ) -> None: ...  # fmt: skip
    @overload
    def __init__(
        self: MaxPool1d[Any], kernel: Sizes, stride: Sizes | None = None, padding: Any = 0,
        dilation: Sizes = 1, *, ceil_mode: bool = False, return_indices: bool = False,
    ) -> None: ...  # fmt: skip
    def __init__(
        self, kernel: Sizes, stride: Sizes | None = None, padding: Any = 0, dilation: Sizes = 1, *,
        ceil_mode: bool = False, return_indices: bool = False,
    ) -> None:  # fmt: skip
        super().__init__(kernel, stride, padding, dilation=dilation, ceil_mode=ceil_mode, return_indices=return_indices)

    def forward(self, x: Tensor) -> R:
        """Pool signals [batch, channels, length].

        Args:
            x: Floating tensor [batch, channels, length].
        """
        y: R = pooling.max_pool1d(x, self.kernel, stride=self.stride, padding=self.padding, **self.settings)
        return y


class MaxPool2d(_Pool, Generic[R]):
    """The largest value of each window of images; arguments as for ``fb.max_pool2d``.

    Args:
        kernel: Window size, an int or (height, width).
        stride: Step between windows; the window size by default.
        padding: Padding, which is never a maximum.
        dilation: Step between the elements of a window.
        ceil_mode: Whether a last window that sticks out counts.
        return_indices: Whether to return where the maxima are as well.

    Example:
        >>> import firebrick as fb
        >>> fb.nn.MaxPool2d(2)(fb.ones((1, 3, 8, 8))).shape
        (1, 3, 4, 4)
    """

    _rank = 2

    @overload
    def __init__(
        self: MaxPool2d[Tensor], kernel: Sizes, stride: Sizes | None = None, padding: Any = 0,
        dilation: Sizes = 1, *, ceil_mode: bool = False, return_indices: Literal[False] = False,
    ) -> None: ...  # fmt: skip
    @overload
    def __init__(
        self: MaxPool2d[Any], kernel: Sizes, stride: Sizes | None = None, padding: Any = 0,
        dilation: Sizes = 1, *, ceil_mode: bool = False, return_indices: bool = False,
    ) -> None: ...  # fmt: skip
    def __init__(
        self, kernel: Sizes, stride: Sizes | None = None, padding: Any = 0, dilation: Sizes = 1, *,
        ceil_mode: bool = False, return_indices: bool = False,
    ) -> None:  # fmt: skip
        super().__init__(kernel, stride, padding, dilation=dilation, ceil_mode=ceil_mode, return_indices=return_indices)

    def forward(self, x: Tensor) -> R:
        """Pool images [batch, channels, height, width].

        Args:
            x: Floating tensor [batch, channels, height, width].
        """
        y: R = pooling.max_pool2d(x, self.kernel, stride=self.stride, padding=self.padding, **self.settings)
        return y


class MaxPool3d(_Pool, Generic[R]):
    """The largest value of each window of volumes; arguments as for ``fb.max_pool3d``.

    Args:
        kernel: Window size, an int or (depth, height, width).
        stride: Step between windows; the window size by default.
        padding: Padding, which is never a maximum.
        dilation: Step between the elements of a window.
        ceil_mode: Whether a last window that sticks out counts.
        return_indices: Whether to return where the maxima are as well.

    Example:
        >>> import firebrick as fb
        >>> fb.nn.MaxPool3d(2)(fb.ones((1, 3, 8, 8, 8))).shape
        (1, 3, 4, 4, 4)
    """

    _rank = 3

    @overload
    def __init__(
        self: MaxPool3d[Tensor], kernel: Sizes, stride: Sizes | None = None, padding: Any = 0,
        dilation: Sizes = 1, *, ceil_mode: bool = False, return_indices: Literal[False] = False,
    ) -> None: ...  # fmt: skip
    @overload
    def __init__(
        self: MaxPool3d[Any], kernel: Sizes, stride: Sizes | None = None, padding: Any = 0,
        dilation: Sizes = 1, *, ceil_mode: bool = False, return_indices: bool = False,
    ) -> None: ...  # fmt: skip
    def __init__(
        self, kernel: Sizes, stride: Sizes | None = None, padding: Any = 0, dilation: Sizes = 1, *,
        ceil_mode: bool = False, return_indices: bool = False,
    ) -> None:  # fmt: skip
        super().__init__(kernel, stride, padding, dilation=dilation, ceil_mode=ceil_mode, return_indices=return_indices)

    def forward(self, x: Tensor) -> R:
        """Pool volumes [batch, channels, depth, height, width].

        Args:
            x: Floating tensor [batch, channels, depth, height, width].
        """
        y: R = pooling.max_pool3d(x, self.kernel, stride=self.stride, padding=self.padding, **self.settings)
        return y


class AvgPool1d(_Pool):
    """The mean of each window of signals; arguments as for ``fb.avg_pool1d``.

    Args:
        kernel: Window size, an int.
        stride: Step between windows; the window size by default.
        padding: Padding with zeros.
        ceil_mode: Whether a last window that sticks out counts.
        count_include_pad: Whether the padding counts as values.

    Example:
        >>> import firebrick as fb
        >>> fb.nn.AvgPool1d(2)(fb.ones((1, 3, 8))).shape
        (1, 3, 4)
    """

    _rank = 1

    def __init__(
        self, kernel: Sizes, stride: Sizes | None = None, padding: Any = 0, ceil_mode: bool = False,
        count_include_pad: bool = True,
    ) -> None:  # fmt: skip
        super().__init__(kernel, stride, padding, ceil_mode=ceil_mode, count_include_pad=count_include_pad)

    def forward(self, x: Tensor) -> Tensor:
        """Pool signals [batch, channels, length].

        Args:
            x: Floating tensor [batch, channels, length].
        """
        return pooling.avg_pool1d(x, self.kernel, stride=self.stride, padding=self.padding, **self.settings)


class AvgPool2d(_Pool):
    """The mean of each window of images; arguments as for ``fb.avg_pool2d``.

    Args:
        kernel: Window size, an int or (height, width).
        stride: Step between windows; the window size by default.
        padding: Padding with zeros.
        ceil_mode: Whether a last window that sticks out counts.
        count_include_pad: Whether the padding counts as values.

    Example:
        >>> import firebrick as fb
        >>> fb.nn.AvgPool2d(2)(fb.ones((1, 3, 8, 8))).shape
        (1, 3, 4, 4)
    """

    _rank = 2

    def __init__(
        self, kernel: Sizes, stride: Sizes | None = None, padding: Any = 0, ceil_mode: bool = False,
        count_include_pad: bool = True,
    ) -> None:  # fmt: skip
        super().__init__(kernel, stride, padding, ceil_mode=ceil_mode, count_include_pad=count_include_pad)

    def forward(self, x: Tensor) -> Tensor:
        """Pool images [batch, channels, height, width].

        Args:
            x: Floating tensor [batch, channels, height, width].
        """
        return pooling.avg_pool2d(x, self.kernel, stride=self.stride, padding=self.padding, **self.settings)


class AvgPool3d(_Pool):
    """The mean of each window of volumes; arguments as for ``fb.avg_pool3d``.

    Args:
        kernel: Window size, an int or (depth, height, width).
        stride: Step between windows; the window size by default.
        padding: Padding with zeros.
        ceil_mode: Whether a last window that sticks out counts.
        count_include_pad: Whether the padding counts as values.

    Example:
        >>> import firebrick as fb
        >>> fb.nn.AvgPool3d(2)(fb.ones((1, 3, 8, 8, 8))).shape
        (1, 3, 4, 4, 4)
    """

    _rank = 3

    def __init__(
        self, kernel: Sizes, stride: Sizes | None = None, padding: Any = 0, ceil_mode: bool = False,
        count_include_pad: bool = True,
    ) -> None:  # fmt: skip
        super().__init__(kernel, stride, padding, ceil_mode=ceil_mode, count_include_pad=count_include_pad)

    def forward(self, x: Tensor) -> Tensor:
        """Pool volumes [batch, channels, depth, height, width].

        Args:
            x: Floating tensor [batch, channels, depth, height, width].
        """
        return pooling.avg_pool3d(x, self.kernel, stride=self.stride, padding=self.padding, **self.settings)


class AdaptiveAvgPool1d(_AdaptivePool):
    """The mean of as many windows of signals as the result is to have; see ``fb.adaptive_avg_pool1d``.

    Args:
        size: Size of the result, an int; None keeps an axis, 1 is global pooling.

    Example:
        >>> import firebrick as fb
        >>> fb.nn.AdaptiveAvgPool1d(5)(fb.ones((1, 3, 8))).shape
        (1, 3, 5)
    """

    _rank = 1

    def __init__(self, size: Any) -> None:
        super().__init__(size)

    def forward(self, x: Tensor) -> Tensor:
        """Pool signals [batch, channels, length].

        Args:
            x: Floating tensor [batch, channels, length].
        """
        return pooling.adaptive_avg_pool1d(x, self.size)


class AdaptiveAvgPool2d(_AdaptivePool):
    """The mean of as many windows of images as the result is to have; see ``fb.adaptive_avg_pool2d``.

    Args:
        size: Size of the result, an int or one for each axis; None keeps an axis, 1 is global pooling.

    Example:
        >>> import firebrick as fb
        >>> fb.nn.AdaptiveAvgPool2d(5)(fb.ones((1, 3, 8, 8))).shape
        (1, 3, 5, 5)
    """

    _rank = 2

    def __init__(self, size: Any) -> None:
        super().__init__(size)

    def forward(self, x: Tensor) -> Tensor:
        """Pool images [batch, channels, height, width].

        Args:
            x: Floating tensor [batch, channels, height, width].
        """
        return pooling.adaptive_avg_pool2d(x, self.size)


class AdaptiveAvgPool3d(_AdaptivePool):
    """The mean of as many windows of volumes as the result is to have; see ``fb.adaptive_avg_pool3d``.

    Args:
        size: Size of the result, an int or one for each axis; None keeps an axis, 1 is global pooling.

    Example:
        >>> import firebrick as fb
        >>> fb.nn.AdaptiveAvgPool3d(5)(fb.ones((1, 3, 8, 8, 8))).shape
        (1, 3, 5, 5, 5)
    """

    _rank = 3

    def __init__(self, size: Any) -> None:
        super().__init__(size)

    def forward(self, x: Tensor) -> Tensor:
        """Pool volumes [batch, channels, depth, height, width].

        Args:
            x: Floating tensor [batch, channels, depth, height, width].
        """
        return pooling.adaptive_avg_pool3d(x, self.size)


class AdaptiveMaxPool1d(_AdaptivePool, Generic[R]):
    """The largest value of as many windows of signals as the result is to have; see ``fb.adaptive_max_pool1d``.

    Args:
        size: Size of the result, an int; None keeps an axis, 1 is global pooling.
        return_indices: Whether to return where the maxima are as well.

    Example:
        >>> import firebrick as fb
        >>> fb.nn.AdaptiveMaxPool1d(5)(fb.ones((1, 3, 8))).shape
        (1, 3, 5)
    """

    _rank = 1

    @overload
    def __init__(self: AdaptiveMaxPool1d[Tensor], size: Any, return_indices: Literal[False] = False) -> None: ...
    @overload
    def __init__(self: AdaptiveMaxPool1d[Any], size: Any, return_indices: bool = False) -> None: ...
    def __init__(self, size: Any, return_indices: bool = False) -> None:
        super().__init__(size, return_indices=return_indices)

    def forward(self, x: Tensor) -> R:
        """Pool signals [batch, channels, length].

        Args:
            x: Floating tensor [batch, channels, length].
        """
        y: R = pooling.adaptive_max_pool1d(x, self.size, **self.settings)
        return y


class AdaptiveMaxPool2d(_AdaptivePool, Generic[R]):
    """The largest value of as many windows of images as the result is to have; see ``fb.adaptive_max_pool2d``.

    Args:
        size: Size of the result, an int or one for each axis; None keeps an axis, 1 is global pooling.
        return_indices: Whether to return where the maxima are as well.

    Example:
        >>> import firebrick as fb
        >>> fb.nn.AdaptiveMaxPool2d(5)(fb.ones((1, 3, 8, 8))).shape
        (1, 3, 5, 5)
    """

    _rank = 2

    @overload
    def __init__(self: AdaptiveMaxPool2d[Tensor], size: Any, return_indices: Literal[False] = False) -> None: ...
    @overload
    def __init__(self: AdaptiveMaxPool2d[Any], size: Any, return_indices: bool = False) -> None: ...
    def __init__(self, size: Any, return_indices: bool = False) -> None:
        super().__init__(size, return_indices=return_indices)

    def forward(self, x: Tensor) -> R:
        """Pool images [batch, channels, height, width].

        Args:
            x: Floating tensor [batch, channels, height, width].
        """
        y: R = pooling.adaptive_max_pool2d(x, self.size, **self.settings)
        return y


class AdaptiveMaxPool3d(_AdaptivePool, Generic[R]):
    """The largest value of as many windows of volumes as the result is to have; see ``fb.adaptive_max_pool3d``.

    Args:
        size: Size of the result, an int or one for each axis; None keeps an axis, 1 is global pooling.
        return_indices: Whether to return where the maxima are as well.

    Example:
        >>> import firebrick as fb
        >>> fb.nn.AdaptiveMaxPool3d(5)(fb.ones((1, 3, 8, 8, 8))).shape
        (1, 3, 5, 5, 5)
    """

    _rank = 3

    @overload
    def __init__(self: AdaptiveMaxPool3d[Tensor], size: Any, return_indices: Literal[False] = False) -> None: ...
    @overload
    def __init__(self: AdaptiveMaxPool3d[Any], size: Any, return_indices: bool = False) -> None: ...
    def __init__(self, size: Any, return_indices: bool = False) -> None:
        super().__init__(size, return_indices=return_indices)

    def forward(self, x: Tensor) -> R:
        """Pool volumes [batch, channels, depth, height, width].

        Args:
            x: Floating tensor [batch, channels, depth, height, width].
        """
        y: R = pooling.adaptive_max_pool3d(x, self.size, **self.settings)
        return y
