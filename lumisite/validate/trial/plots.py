"""The plots of a trial: each effect with its interval, by size where there are sizes, and each allocation as a dot."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from lumisite.text import change
from lumisite.validate.metric_names import size_text
from lumisite.validate.report.plots import AFTER, BAD, BEFORE, ROW, Plot
from lumisite.validate.trial.design import Design
from lumisite.validate.trial.effects import Effect
from lumisite.validate.trial.judge import Answer

if TYPE_CHECKING:
    from matplotlib.axes import Axes

#: Colours of effects by what they say: nothing, better, worse (palette: Okabe and Ito, 2008).
NOTHING, BETTER, WORSE = BEFORE, AFTER, BAD


def plots(design: Design, answers: Sequence[Answer]) -> tuple[Plot, ...]:
    """Give for each setting, in this order, what hung or failed, its bands, and each curve of sizes."""
    return tuple(plot for answer in answers for plot in _of(answer, design.thresholds.smallest))


def _of(answer: Answer, smallest: float) -> Iterator[Plot]:
    if answer.hangs.with_it.bad or answer.hangs.without.bad:
        yield _hangs(answer)
    if answer.effects:
        labels = [effect.name for effect in answer.effects]
        yield _effects(f"{answer.setting}: what it changes", answer.effects, labels, smallest, sideways=True)
    for metric in dict.fromkeys(effect.metric for effect in answer.sizes):
        own = [effect for effect in (*answer.effects, *answer.sizes) if effect.metric == metric]
        single = sorted((one for one in own if one.first == one.last), key=lambda one: one.first or 0)
        labels = [size_text(one.first or 0) for one in single]
        yield _effects(f"{answer.setting}: {metric} by size", single, labels, smallest)


def _effects(
    title: str, effects: Sequence[Effect], labels: Sequence[str], smallest: float, *, sideways: bool = False
) -> Plot:
    """Draw effects beside each other, or below each other where names are long; grey is what is of no interest."""

    def draw(axes: Axes) -> None:
        span, line = (axes.axvspan, axes.axvline) if sideways else (axes.axhspan, axes.axhline)
        span(-100 * smallest, 100 * smallest, color="#999999", alpha=0.2, linewidth=0)
        line(0, color="black", linewidth=0.8)
        for place, effect in enumerate(effects):
            colour = NOTHING if effect.low <= 0 <= effect.high else BETTER if effect.effect > 0 else WORSE
            for parts, mark, at in (((effect.low, effect.high), "-", 0.0), (tuple(effect.each.values()), "o", 0.25)):
                values, places = [100 * part for part in parts], [place + at] * len(parts)
                both = (values, places) if sideways else (places, values)
                axes.plot(*both, mark, color=colour, linewidth=3, markersize=4, alpha=0.8)
        if sideways:
            axes.set_yticks(range(len(effects)), labels, fontsize=7)
            axes.set_ylim(len(effects) - 0.4, -0.6)
            axes.set_xlabel("% with it, against without")
        else:
            axes.set_xticks(range(len(effects)), labels, rotation=30, ha="right")
            axes.set_ylabel("% with it, against without")

    rows = [
        (label, change(one.effect), change(one.low), change(one.high), " ".join(map(change, one.each.values())))
        for label, one in zip(labels, effects, strict=True)
    ]
    head = ("", "effect", "from", "to", "allocations")
    return Plot(title, title, head, rows, draw, ROW * len(effects) if sideways else 0)


def _hangs(answer: Answer) -> Plot:
    sides = (("with it", answer.hangs.with_it), ("without", answer.hangs.without))

    def draw(axes: Axes) -> None:
        for place, (_, rate) in enumerate(sides):
            axes.bar([place], [rate.runs], 0.5, color="white", edgecolor="black")
            axes.bar([place], [rate.bad], 0.5, color=WORSE, hatch="//", edgecolor="white")
            axes.annotate(str(rate), (place, rate.runs), ha="center", va="bottom")
        axes.set_xticks(range(len(sides)), [name for name, _ in sides])
        axes.set_ylabel("runs; filled: hung or failed")
        axes.margins(y=0.15)

    rows = [(name, str(rate.bad), str(rate.hung), str(rate.runs)) for name, rate in sides]
    title = f"{answer.setting}: runs that hung or failed"
    return Plot(title, title, ("", "hung or failed", "hung", "runs"), rows, draw)
