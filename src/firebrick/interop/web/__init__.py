"""Programs for web pages: compiled functions that a browser runs on WebGPU."""

import firebrick.backends.webgpu as _webgpu  # noqa: F401  before its parts
import firebrick.graph as _graph  # noqa: F401  before its parts
from firebrick.interop.web.exporting import Exported, export

__all__ = ["Exported", "export"]
