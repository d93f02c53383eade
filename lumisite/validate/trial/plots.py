"""The plots of a trial: each effect with its interval, by size where there are sizes, and each allocation as a dot."""

from __future__ import annotations

from collections.abc import Sequence

from matplotlib.axes import Axes

from lumisite.text import change
from lumisite.validate.metric_names import size_text
from lumisite.validate.report.plots import AFTER, BAD, BEFORE, Plot
from lumisite.validate.trial.design import Design
from lumisite.validate.trial.effects import Effect
from lumisite.validate.trial.judge import Answer, TrialVerdict

#: Colours of effects by what they say: nothing, better, worse (palette: Okabe and Ito, 2008).
NOTHING, BETTER, WORSE = BEFORE, AFTER, BAD


def plots(design: Design, verdict: TrialVerdict) -> tuple[Plot, ...]:
    """Give for each setting a plot of its bands, one of each curve of sizes, and one of what hung or failed."""
    return tuple(plot for answer in verdict.answers for plot in _of(answer, design))


def _of(answer: Answer, design: Design) -> list[Plot]:
    """Give the plots of one setting."""
    smallest = design.thresholds.smallest
    found = []
    if answer.effects:
        labels = [effect.name for effect in answer.effects]
        found.append(_effects(f"{answer.setting}: what it changes", answer.effects, labels, smallest))
    for metric in dict.fromkeys(effect.metric for effect in answer.sizes):
        own = [effect for effect in (*answer.effects, *answer.sizes) if effect.metric == metric]
        single = sorted((one for one in own if one.first == one.last), key=lambda one: one.first or 0)
        labels = [size_text(one.first or 0) for one in single]
        found.append(_effects(f"{answer.setting}: {metric} by size", single, labels, smallest))
    if answer.hangs.with_it.bad or answer.hangs.without.bad:
        found.append(_hangs(answer))
    return found


def _effects(title: str, effects: Sequence[Effect], labels: Sequence[str], smallest: float) -> Plot:
    """Draw effects beside each other, with what is of no interest as a band around none."""

    def draw(axes: Axes) -> None:
        axes.axhspan(-100 * smallest, 100 * smallest, color="#999999", alpha=0.2, linewidth=0)
        axes.axhline(0, color="black", linewidth=0.8)
        for place, effect in enumerate(effects):
            colour = NOTHING if effect.low <= 0 <= effect.high else BETTER if effect.effect > 0 else WORSE
            axes.plot([place, place], [100 * effect.low, 100 * effect.high], color=colour, linewidth=2)
            axes.plot([place], [100 * effect.effect], marker="_", color=colour, markersize=14, markeredgewidth=2)
            dots = [100 * part for part in effect.each.values()]
            axes.plot([place + 0.2] * len(dots), dots, "o", color=colour, markersize=4, alpha=0.8)
        axes.set_xticks(range(len(effects)), labels, rotation=30, ha="right")
        axes.set_xlim(-0.6, len(effects) - 0.4)
        axes.set_ylabel("% with it, against without")

    rows = [
        (label, change(one.effect), change(one.low), change(one.high), " ".join(map(change, one.each.values())))
        for label, one in zip(labels, effects, strict=True)
    ]
    return Plot(title, title, ("", "effect", "from", "to", "allocations"), rows, draw)


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
