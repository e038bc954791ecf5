"""A character-level GPT that can be stopped at any time: run again, it resumes in the middle of the epoch, with the same bits.

python examples/char_gpt.py --text book.txt --out runs/gpt --prompt "The "
"""

from __future__ import annotations

import argparse
import tempfile
from pathlib import Path
from pydoc_data.topics import topics

import numpy as np

import firebrick as fb
from firebrick import nn, optim
from firebrick.data import DataLoader
from firebrick.train import load_checkpoint, save_checkpoint


class Windows:
    """Windows of a text, which overlap by half: the codes of its characters, and of the characters that follow each of them."""

    def __init__(self, codes: np.ndarray, context: int) -> None:
        self.codes, self.context = codes, context

    def __len__(self) -> int:
        return (len(self.codes) - 1 - self.context) // (self.context // 2) + 1

    def __getitem__(self, index: int) -> tuple[np.ndarray, np.ndarray]:
        window = self.codes[index * (self.context // 2) :][: self.context + 1]
        return window[:-1], window[1:]


class GPT(nn.Module):
    """Codes [batch, length] to scores of the next character [batch, length, characters]: a transformer that looks back only."""

    def __init__(self, characters: int, context: int, embed: int, heads: int, layers: int) -> None:
        self.context = context  # it has seen no longer windows
        self.embedding = nn.Embedding(characters, embed)
        self.trunk = nn.TransformerEncoder(embed, heads, layers, dropout=0.1, rotary=nn.RotaryPositions(embed // heads))
        self.head = nn.Linear(embed, characters, bias=False)

    def forward(self, codes: fb.Tensor, cache: list[nn.KeyValueCache] | None = None) -> fb.Tensor:
        return self.head(self.trunk(self.embedding(codes), causal=True, cache=cache))


def loss(model: GPT, codes: fb.Tensor, following: fb.Tensor) -> fb.Tensor:
    return fb.cross_entropy(model(codes).mT, following)  # classes are the second axis


class Training:
    """All that a run depends on, and a checkpoint therefore keeps."""

    def __init__(self, codes: np.ndarray, characters: int, short: bool) -> None:
        fb.random.seed(0)
        self.model = model = GPT(characters, 32, 32, 2, 2) if short else GPT(characters, 128, 128, 4, 4)
        self.optimizer = optimizer = optim.AdamW(model, lr=optim.warmup(optim.cosine(3e-3, 1000), 20), weight_decay=0.1)
        self.loader = DataLoader(Windows(codes, model.context), batch_size=32, shuffle=True, seed=1)
        loss_and_gradients = fb.value_and_grad(loss)

        @fb.jit  # one program, which changes the model and the optimizer
        def step(codes: fb.Tensor, following: fb.Tensor) -> fb.Tensor:
            value, gradients = loss_and_gradients(model, codes, following)
            optim.clip_norm(gradients, 1.0)
            optimizer.update(model, gradients)
            return value

        self.step, self.done = step, 0

    def run(self, until: int, out: Path) -> list[float]:
        """Train until so many steps are done, with a checkpoint every 100 steps and at the end; returns the losses."""
        losses = []
        while self.done < until:
            for _, batch in zip(range(until - self.done), self.loader, strict=False):  # or the rest of a resumed epoch
                losses.append(self.step(*batch))
                self.done += 1
                if self.done % 100 == 0 or self.done == until:
                    self.save(out)
                    print(f"step {self.done}: loss {losses[-1]:.3f}")
        return [float(value) for value in fb.read(losses)]

    def save(self, out: Path) -> None:
        state = {"done": self.done, "cursor": self.loader.cursor(), "dropout": self.model.generator_states()}
        model, optimizer = self.model.state_dict(), self.optimizer.state_dict()
        save_checkpoint(out, model=model, optimizer=optimizer, state=state, config={})

    def load(self, out: Path) -> None:
        found = load_checkpoint(out)
        found.load_into(self.model)
        self.optimizer.load_state_dict(found.optimizer)
        self.model.set_generator_states(found.state["dropout"])
        self.loader.load_cursor(found.state["cursor"])
        self.done = found.state["done"]


def generate(model: GPT, codes: list[int], count: int, temperature: float = 0.8) -> list[int]:
    """Continue a text: each character is drawn by its score, and only the new one goes through the model."""
    model.eval()
    generator, half = fb.random.Generator(0), model.context // 2
    with fb.no_grad():
        for k in range(count):
            if k % half == 0:  # begin again with the last half of a window
                new, cache = codes[-half:], model.trunk.new_cache()
            scores = model(fb.asarray([new]), cache=cache)[0, -1] / temperature
            noise = -fb.log(-fb.log(generator.uniform(scores.shape)))  # the largest sum is a draw from the softmax
            new = [int(fb.argmax(scores + noise).item())]
            codes = codes + new
    return codes


def stop_and_resume(codes: np.ndarray, characters: int) -> Training:
    """Train 60 steps in one go; then 25, and the rest from the checkpoint alone."""
    with tempfile.TemporaryDirectory() as folder:
        straight, stopped, resumed = (Training(codes, characters, short=True) for _ in range(3))
        losses = straight.run(60, Path(folder) / "straight")
        before = stopped.run(25, Path(folder) / "stopped")
        resumed.load(Path(folder) / "stopped")
        after = resumed.run(60, Path(folder) / "stopped")
    weights, same = straight.model.state_dict(), resumed.model.state_dict()
    equal = sum(values.numpy().tobytes() == same[name].numpy().tobytes() for name, values in weights.items())
    print(f"resumed after 25 of {len(straight.loader)} steps of an epoch:")
    print(f"{equal} of {len(weights)} parameters and {sum(map(float.__eq__, losses, before + after))} of 60 losses are equal")
    print(f"loss: {losses[0]:.3f} at first, {losses[-1]:.3f} at last")
    return resumed


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--text", type=Path, help="a text file (by default, Python's own language reference)")
    parser.add_argument("--out", type=Path, default=Path("runs/gpt"), help="folder of the checkpoint (runs/gpt)")
    parser.add_argument("--steps", type=int, default=1000, help="steps in all, earlier runs' among them (1000)")
    parser.add_argument("--prompt", default="The ", help="beginning of the text to generate")
    parser.add_argument("--short", action="store_true", help="a small model: 60 steps in one go, then stopped and resumed")
    args = parser.parse_args()
    text = args.text.read_text("utf-8") if args.text else "\n".join(topics.values())
    alphabet, codes = np.unique(list(text), return_inverse=True)
    if args.short:
        training = stop_and_resume(codes[:20_000], len(alphabet))
    else:
        training = Training(codes, len(alphabet), short=False)
        if args.out.exists():
            training.load(args.out)
        training.run(args.steps, args.out)
    prompt = np.searchsorted(alphabet, list(args.prompt)).tolist()
    print("".join(alphabet[generate(training.model, prompt, 50 if args.short else 500)]))


if __name__ == "__main__":
    main()
