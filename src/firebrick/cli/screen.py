"""The screen of a ``Dashboard``, drawn with textual: it looks at what the training thread left, and never holds it up."""

from __future__ import annotations

from threading import Thread
from time import perf_counter, time
from typing import TYPE_CHECKING, Any, ClassVar

from rich.console import Group
from rich.table import Table
from rich.text import Text
from textual.app import App, ComposeResult
from textual.containers import Horizontal
from textual.screen import ModalScreen
from textual.widgets import Footer, Static

from firebrick.backends.memory import memory_stats
from firebrick.cli.plotting import Curve, plotted

if TYPE_CHECKING:
    from firebrick.cli.dashboard import Dashboard

_TRAIN, _VALID = "#4fb3ff", "#ffb454"
_BLOCKS = " ▏▎▍▌▋▊▉"
_HELP = f"""[b]q[/], [b]Ctrl-C[/]   finish the running step, save and stop;
            the command to go on with is printed
[b]c[/]           write a checkpoint after the running step
[b]?[/]           this help; any key closes it

Pressing Ctrl-C again ends the run at once, without a checkpoint.
Curves are means of each epoch, in [{_TRAIN}]blue[/] while it trained and
in [{_VALID}]yellow[/] of the validation data after it."""


class Help(ModalScreen[None]):
    """What the keys do."""

    CSS = """
    Help { align: center middle; }
    Help > Static { width: 70; max-width: 100%; height: auto; border: round $primary; background: $surface; padding: 0 1; }
    """

    def compose(self) -> ComposeResult:
        """One box of text."""
        box = Static(_HELP)
        box.border_title = "keys"
        yield box

    def on_key(self) -> None:
        """Any key closes it."""
        self.dismiss()


_PARTS = ("head", "progress", "loss", "other", "devices", "saved", "log")  # what a look writes to


class Screen(App[None]):
    """Progress, curves, devices, the last checkpoint and log lines, with keys to stop and to save.

    Args:
        board: Whose numbers to show.
        thread: The training; the screen closes when it ends.

    Attributes:
        given_up: Whether the run is to end at once.
    """

    CSS = """
    Screen { layers: base; }
    #head { height: 1; background: $primary-darken-2; color: $text; padding: 0 1; }
    .box { border: round $primary-darken-1; border-title-color: $text; padding: 0 1; }
    #progress { height: 5; }
    #curves { height: 1fr; min-height: 5; }
    #curves > .box { width: 1fr; height: 100%; }
    #facts { height: auto; max-height: 8; }
    #devices { width: 3fr; height: auto; min-height: 4; }
    #saved { width: 2fr; height: 100%; min-height: 4; }
    #curves > .box { border-subtitle-color: #ffb454; }
    #log { height: 5; text-wrap: nowrap; text-overflow: ellipsis; }
    """
    BINDINGS: ClassVar[list[Any]] = [
        ("q", "stop", "stop safely"),
        ("c", "save", "checkpoint now"),
        ("question_mark", "help", "help"),
    ]
    ENABLE_COMMAND_PALETTE = False

    def __init__(self, board: Dashboard, thread: Thread) -> None:
        super().__init__()
        self._board, self._thread = board, thread
        self._asked: float | None = None  # for a checkpoint, in seconds since 1970
        self.given_up = False

    def compose(self) -> ComposeResult:
        """The parts, from top to bottom."""
        yield Static(id="head")
        yield _box("progress", "progress")
        with Horizontal(id="curves"):
            yield _box("loss", "loss")
            yield _box("other", "accuracy")
        with Horizontal(id="facts"):
            yield _box("devices", "devices")
            yield _box("saved", "last checkpoint")
        yield _box("log", "log")
        yield Footer()

    def on_mount(self) -> None:
        """Look now, and then five times a second."""
        self.look()
        self.set_interval(0.2, self.look)

    def on_resize(self) -> None:
        """Curves are as wide as their boxes."""
        self.call_after_refresh(self.look)

    def look(self) -> None:
        """Show what is known now; close when training is over."""
        if not self._thread.is_alive():
            self.exit()
            return
        if not (self.screen_stack and all(self.screen_stack[0].query(f"#{part}") for part in _PARTS)):
            return  # its parts are not there yet, or no longer: the clock ticks beside their coming and going
        self._part("head").update(self._head())
        self._part("progress").update(self._progress())
        self._curves()
        self._part("devices").update(self._devices())
        self._part("saved").update(self._saved())
        box = self._part("log")
        rows = max(1, box.content_size.height)
        box.update(Text("\n".join(self._board.seen.lines[-rows:])))

    # keys

    def action_stop(self) -> None:
        """Finish the step, save, stop."""
        if self._board.learner is not None:
            self._board.learner.interrupts.stop()
        self.look()

    def action_save(self) -> None:
        """Save after the running step."""
        if self._board.learner is not None:
            self._asked = time()
            self._board.learner.interrupts.save()
        self.look()

    def action_help(self) -> None:
        """Explain the keys."""
        self.push_screen(Help())

    async def action_quit(self) -> None:
        """Ctrl-Q: as Ctrl-C."""
        self.action_help_quit()

    def action_help_quit(self) -> None:
        """Ctrl-C: stop; a second time, at once."""
        if self._board.stopping:
            self.given_up = True
            self.exit()
        self.action_stop()

    # parts

    def _part(self, name: str) -> Static:
        return self.screen_stack[0].query_one(f"#{name}", Static)

    def _head(self) -> Table:
        line = Table.grid(expand=True)
        state = Text("stopping after this step …", style="bold") if self._board.stopping else Text("training")
        line.add_column(no_wrap=True, overflow="ellipsis", ratio=1)
        line.add_column(justify="right", no_wrap=True, min_width=state.cell_len + 1)
        line.add_row(Text(f"firebrick  {self._board.title}", style="bold"), state)
        return line

    def _progress(self) -> Group:
        seen = self._board.seen
        now = perf_counter()
        grid = Table.grid(padding=(0, 1), expand=True)
        for ratio, justify in ((None, "left"), (1, "left"), (None, "right"), (None, "right")):
            grid.add_column(ratio=ratio, justify=justify, no_wrap=True)  # type: ignore[arg-type]
        width = max(10, self._part("progress").content_size.width - 42)
        epoch_share, of = (min(1.0, seen.done / seen.batches), f"/{seen.batches}") if seen.batches else (0.0, "")
        run_share = seen.progress / max(1, seen.epochs)
        here = seen.done - seen.epoch_first if seen.batches else 0
        epoch_left = _left(now - seen.epoch_began, here, seen.batches - seen.done)
        run_left = _left(now - seen.began, seen.progress - (seen.first or 0.0), seen.epochs - seen.progress)
        grid.add_row("epoch", _bar(epoch_share, width), f"{seen.done}{of} batches", epoch_left)
        grid.add_row("run", _bar(run_share, width), f"{seen.epoch}/{seen.epochs} epochs", run_left)
        numbers = [f"{n} {v:.4f}" for n, v in seen.values.items() if v is not None]
        numbers += [f"{seen.speed:,.0f} samples/s"] if seen.speed else []
        return Group(grid, Text(f"now   {'   '.join(numbers) or 'preparing the first step …'}", no_wrap=True))

    def _curves(self) -> None:
        seen = self._board.seen
        other = "accuracy" if "accuracy" in seen.curves or "mse" not in seen.curves else "mse"
        ends = (0.0, float(max(1, seen.epochs)))
        for where, name in (("loss", "loss"), ("other", other)):
            box = self._part(where)
            box.border_title = name
            held = [(float(r.epoch), v) for r in seen.rows if (v := getattr(r, f"valid_{name}")) is not None]
            box.border_subtitle = f"validation {held[-1][1]:.4f}" if held else f"{seen.epochs} epochs"
            size = box.content_size
            done = [(float(r.epoch), v) for r in seen.rows if (v := getattr(r, f"train_{name}")) is not None]
            running = [p for p in seen.curves.get(name, []) if not done or p[0] > done[-1][0]]
            both: list[tuple[Curve, str]] = [([*done, *running], _TRAIN), (held, _VALID)]
            box.update(plotted(both, size.width, size.height, ends))

    def _devices(self) -> Table:
        table = Table.grid(padding=(0, 2))
        learner = self._board.learner
        if learner is None:
            return table
        strategy = learner.strategy
        shares = getattr(strategy, "shares", None) or [1.0 / len(strategy.devices)] * len(strategy.devices)
        table.add_row(*(Text(t, style="dim") for t in ("device", "share", "memory", "at most")))
        for device, share in list(zip(strategy.devices, shares, strict=True))[:5]:
            memory = memory_stats(device)
            table.add_row(device.name, f"{share:.0%}", _bytes(memory["live"]), _bytes(memory["peak"]))
        if len(strategy.devices) > 5:
            table.add_row(Text(f"and {len(strategy.devices) - 5} more", style="dim"))
        return table

    def _saved(self) -> Text:
        saved, learner = self._board.saved, self._board.learner
        if self._asked is not None and saved is not None and saved >= self._asked:
            self._asked = None
        if learner is None or learner.out is None:
            return Text("no run directory")
        ago = "none yet" if saved is None else f"{_duration(max(0.0, time() - saved))} ago"
        below = (str(learner.out), "dim") if self._asked is None else ("asked for: after this step", "bold")
        return Text.assemble(ago, "\n", below, no_wrap=True)


def _box(name: str, title: str) -> Static:
    box = Static(id=name, classes="box")
    box.border_title = title
    return box


def _bar(share: float, width: int) -> Text:
    """A bar with eighths of a character."""
    eighths = round(min(1.0, max(0.0, share)) * width * 8)
    full, rest = divmod(eighths, 8)
    bar = "█" * full + (_BLOCKS[rest] if rest else "")
    return Text.assemble((bar, _TRAIN), ("─" * (width - len(bar)), "dim"), f" {share:4.0%}")


def _left(seconds: float, done: float, rest: float) -> str:
    """The time that the rest takes at the speed so far."""
    return f"{_duration(seconds / done * rest)} left" if done > 0 else "–"


def _duration(seconds: float) -> str:
    minutes, seconds = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{seconds:02}" if hours else f"{minutes}:{seconds:02}"


def _bytes(count: int) -> str:
    size, units = float(count), ["B", "KiB", "MiB", "GiB", "TiB"]
    while size >= 1024 and len(units) > 1:
        size /= 1024
        units.pop(0)
    return f"{size:.0f} {units[0]}" if units[0] == "B" else f"{size:.1f} {units[0]}"
