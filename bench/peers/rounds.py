"""Interleaved rounds, and rows of medians and ratios made of their samples."""

import dataclasses
import statistics

from environment import Unavailable, UnisonoFailed, say


@dataclasses.dataclass
class Row:
    """A line of the table."""

    work: str
    unisono: str
    peer: str
    ratio: str
    detail: bool = False
    """Whether it belongs below the table."""


@dataclasses.dataclass
class Samples:
    """What the rounds of one work gave: for each side a list of measurements, or the reason why there is none."""

    rounds: dict
    missing: dict = dataclasses.field(default_factory=dict)
    failed: bool = False
    """Whether unisono failed, in place of not knowing this work yet."""

    def values(self, side, metric):
        """One number of each round."""
        return [sample[metric] for sample in self.rounds.get(side, [])]

    def median(self, side, metric):
        """Its median, `None` where the side has no sample."""
        values = self.values(side, metric)
        return statistics.median(values) if values else None


def interleave(name, sides, rounds, once=()):
    """Runs every side once a round, in the reverse order each second round, and those in `once` in the first round only.

    `sides` maps names to functions that give a measurement, a dictionary of numbers. A side that cannot run is not tried again; where
    unisono cannot, the others run one round.
    """
    samples = Samples({side: [] for side in sides})
    for number in range(rounds):
        if number > 0 and "unisono" in samples.missing:
            break
        for side in list(sides) if number % 2 == 0 else reversed(list(sides)):
            if side in samples.missing or (side in once and number > 0):
                continue
            say(f"{name}, round {number + 1} of {rounds}: {side}")
            try:
                samples.rounds[side].append(sides[side]())
            except (Unavailable, UnisonoFailed) as error:
                say(f"  {error}")
                samples.missing[side] = str(error)
                samples.rounds[side].clear()
                samples.failed |= isinstance(error, UnisonoFailed)
    return samples


def compare(work, samples, metric, show, higher_is_better=False, peers=None):
    """A row: unisono's median, the best peer's, and the median ratio over rounds, above 1 where unisono is ahead.

    `show` makes a text of a number. `peers` are the sides that count, all others than unisono if not given; the best one by its median does.
    """
    peers = [side for side in samples.rounds if side != "unisono"] if peers is None else peers
    medians = {side: samples.median(side, metric) for side in peers if samples.median(side, metric) is not None}
    unisono = samples.median("unisono", metric)
    texts = []
    best = None
    if medians:
        best = (max if higher_is_better else min)(medians, key=medians.get)
        others = [f"{side} {show(medians[side])}" for side in medians if side != best]
        texts.append(show(medians[best]) + (f" ({'; '.join([best, *others])})" if len(peers) > 1 else ""))
    texts += [f"{side} not available: {samples.missing[side]}" for side in peers if side in samples.missing]
    ratio = "–"
    if best and unisono is not None:
        pairs = list(zip(samples.values("unisono", metric), samples.values(best, metric)))
        ratios = [ours / theirs if higher_is_better else theirs / ours for ours, theirs in pairs]
        ratio = f"{statistics.median(ratios):.2f}×"
        if len(ratios) > 1:
            ratio += f" ({min(ratios):.2f}–{max(ratios):.2f})"
    return Row(work, ours_text(samples, unisono, show), "; ".join(texts) or "–", ratio)


def ours_text(samples, value, show):
    """Unisono's cell."""
    if value is not None:
        return show(value)
    return f"{'failed' if samples.failed else 'not available'}: {samples.missing.get('unisono', 'no sample')}"


def table(rows):
    """The rows in Markdown."""
    lines = ["| work | unisono | PyTorch | ratio |", "|---|---|---|---|"]
    for row in rows:
        cells = (cell.replace("|", "\\|").replace("\n", " ") for cell in (row.work, row.unisono, row.peer, row.ratio))
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines)
