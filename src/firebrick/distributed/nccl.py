"""``NcclWire``: from GPU to GPU by NCCL, on buffers that stay in device memory.

Ranks tell each other what they call over gloo before (see ``header``), so a rank that does not come is found there. Messages
and sums run on a stream of their own beside the program's: they wait for what was packed, and results wait for them.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from datetime import timedelta
from importlib import import_module
from typing import Any

from firebrick.backends.handles import wrap
from firebrick.core.errors import UnsupportedError
from firebrick.core.tensor import Tensor
from firebrick.distributed.process import Meeting, torch_distributed
from firebrick.distributed.reductions import FOLDS, fold_dtype
from firebrick.distributed.wire import COLLECTIVE, Message, Wire, WireError


class NcclWire(Wire):
    """CUDA memory, by torch's NCCL; each rank uses one device.

    Args:
        meeting: Where the ranks found each other.

    Raises:
        UnsupportedError: torch has no NCCL, or there is no CUDA device.
    """

    def __init__(self, meeting: Meeting) -> None:
        self._torch, self._dist = import_module("torch"), torch_distributed()
        if not self._dist.is_nccl_available() or not self._torch.cuda.is_available():
            raise UnsupportedError(
                'backend="nccl" needs CUDA devices and a PyTorch built with NCCL',
                f"PyTorch {self._torch.__version__} with {self._torch.cuda.device_count()} CUDA devices",
                'use backend="gloo", which carries tensors of any device through host memory',
            )
        self.rank, self.size = meeting.rank, meeting.size
        # NCCL's own watchdog ends the process; it is to come after the error that names who is missing
        patience = timedelta(seconds=2 * meeting.seconds + 60)
        if self._dist.is_initialized():  # by the program itself
            self._group = self._dist.new_group(backend="nccl", timeout=patience)
        else:
            self._dist.init_process_group(
                "nccl", store=meeting.store("nccl"), rank=self.rank, world_size=self.size, timeout=patience
            )
            self._group = self._dist.group.WORLD
        self._stream: Any = None
        self._packed: Any = None

    def exchange(self, sends: Sequence[Message], receives: Sequence[Message], deadline: float, tag: int = COLLECTIVE) -> None:
        """See ``Wire``; NCCL has no tags, and only collective operations come here."""
        dist = self._dist
        calls = [dist.P2POp(dist.irecv, b, p, self._group) for p, b in receives]
        calls += [dist.P2POp(dist.isend, b, p, self._group) for p, b in sends]
        if not calls:
            return
        try:
            works = dist.batch_isend_irecv(calls)
            while not all(w.is_completed() for w in works):
                if time.monotonic() > deadline:
                    raise WireError("time is up", {p for p, _ in (*sends, *receives)})
                time.sleep(2e-5)
            for w in works:
                w.wait()  # orders this stream behind them
        except RuntimeError as e:
            raise WireError(str(e).partition("\n")[0]) from e

    def carries(self, tensors: Sequence[Tensor]) -> bool:
        """Whether all lie on CUDA devices."""
        return all(t.device.engine == "torch" and t.device.platform == "cuda" for t in tensors)

    def beside(self) -> Any:
        """The stream of messages, behind everything that was packed."""
        if self._packed is not None:
            self._stream.wait_event(self._packed)
        return self._torch.cuda.stream(self._stream)

    def pack(self, tensors: Sequence[Tensor]) -> Any:
        """See ``Wire``."""
        flat = self._torch.cat([t.storage.data.reshape(-1) for t in tensors])
        if flat.is_cuda:
            if self._stream is None:
                self._stream = self._torch.cuda.Stream(flat.device)
            self._packed = self._torch.cuda.current_stream(flat.device).record_event()
            flat.record_stream(self._stream)
        return flat

    def unpack(self, flat: Any, like: Sequence[Tensor]) -> list[Tensor]:
        """See ``Wire``."""
        if flat.is_cuda:
            current = self._torch.cuda.current_stream(flat.device)
            current.wait_stream(self._stream)
            flat.record_stream(current)
        out, start = [], 0
        for x in like:
            native = flat[start : start + x.size].reshape(x.shape).clone().to(x.storage.data.device)
            out.append(wrap(native, x.aval, x.device))
            start += x.size
        return out

    def empty(self, size: int, like: Any) -> Any:
        """See ``Wire``."""
        return self._torch.empty(size, dtype=like.dtype, device=like.device)

    def fold(self, op: str, terms: Sequence[Any], out: Any, like: Tensor) -> None:
        """See ``Wire``."""
        wide, step = getattr(self._torch, fold_dtype(like.dtype).name), getattr(self._torch, FOLDS[op])
        total = terms[0].to(wide)
        place = out if out.dtype == wide else self._torch.empty(out.shape, dtype=wide, device=out.device)
        for term in terms[1:]:
            total = step(total, term.to(wide), out=place)
        if total is not out:
            out.copy_(total)

    def close(self) -> None:
        """Give the group back to torch."""
        if self._dist.is_initialized():
            self._dist.destroy_process_group(self._group)
