"""Fill docs/settle.md and draw its figures from docs/evidence/settle: ``python benchmarks/settle_page.py``.

The comparisons, tests and thresholds are those that docs/settle.md registered before the runs.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pandas as pd
from matplotlib import pyplot as plt
from scipy import stats

DOCS = Path(__file__).parents[1] / "docs"
EVIDENCE, PAGE, IMAGES = DOCS / "evidence" / "settle", DOCS / "settle.md", DOCS / "images" / "settle"
BUDGETS = {"params": "#2563a8", "outputs": "#b45309", "step-time": "#15803d"}  # with their colors
POINTWISE, LOGIC = ["relu", "silu", "tanh"], ["or_ail", "xnor_ail", "or_and_xnor_ail_d"]
CONTROL = {"or_ail": "pair_random_or", "xnor_ail": "pair_random_xnor", "or_and_xnor_ail_d": "pair_random_d"}
ARMS = [*POINTWISE, "max", "max_min_d", "glu", "bilinear", *CONTROL.values(), "pair_learned", *LOGIC]
SEEDS, SMALLEST, ALPHA = 10, 0.5, 0.05  # runs of a cell, percentage points that matter, significance level


def read(folder: Path = EVIDENCE, first: bool = False) -> pd.DataFrame:
    """Return the runs of all complete datasets, accuracies in percent; if ``first``, with the first runs under ``step-time``.

    A diverged run counts as the worst of its dataset.
    """
    frame = pd.concat([pd.read_csv(path) for path in sorted((folder / "runs").glob("*.csv"))])
    if first:
        others = [pd.read_csv(path) for path in sorted((folder / "first").glob("*.csv"))]
        frame = pd.concat([frame[frame["budget"] != "step-time"], *others])
    runs = frame.groupby("dataset")["seed"].transform("size")
    frame = frame[runs == len(BUDGETS) * len(ARMS) * SEEDS].copy()
    for split in ("valid", "test"):
        worst = frame.groupby(["dataset", "budget"])[f"{split}_accuracy"].transform("min")
        frame[split] = 100 * frame[f"{split}_accuracy"].fillna(worst)
    return frame


def means(frame: pd.DataFrame, budget: str, split: str = "test") -> pd.DataFrame:
    """Return mean accuracies under a budget, one row per dataset and one column per arm."""
    return frame[frame["budget"] == budget].groupby(["dataset", "activation"])[split].mean().unstack()[ARMS]


class Comparison(NamedTuple):
    """Paired differences a − b in percentage points, pooled over the datasets with equal weights."""

    a: str
    b: str
    difference: float
    seeds: float  # half the 95 % interval for these datasets, from the paired differences over seeds
    datasets: float  # half the 95 % interval over datasets
    p: float  # Wilcoxon's signed-rank test over datasets
    bayes: tuple[float, ...]  # Bayesian signed-rank test: probabilities of a < b, practically equal, and a > b

    @property
    def beats(self) -> bool:
        """Whether a beats b as registered."""
        return self.p < ALPHA and self.difference > 0 and self.difference + self.seeds >= SMALLEST


def differences(frame: pd.DataFrame, budget: str, a: str, b: str) -> pd.DataFrame:
    """Return mean and variance of the paired differences a − b over seeds, by dataset."""
    table = frame[frame["budget"] == budget].pivot(index=["dataset", "seed"], columns="activation", values="test")
    return (table[a] - table[b]).groupby("dataset").agg(["mean", "var"])


def compare(frame: pd.DataFrame, budget: str, a: str, b: str) -> Comparison:
    """Compare two arms under a budget."""
    mean, variance = differences(frame, budget, a, b).to_numpy().T
    n = len(mean)
    seeds = stats.t.ppf(1 - ALPHA / 2, n * (SEEDS - 1)) * np.sqrt((variance / SEEDS).sum()) / n
    datasets = stats.t.ppf(1 - ALPHA / 2, n - 1) * mean.std(ddof=1) / np.sqrt(n)
    return Comparison(a, b, mean.mean(), seeds, datasets, stats.wilcoxon(mean).pvalue, bayes(mean))


def bayes(observed: np.ndarray) -> tuple[float, ...]:
    """Return the probabilities that differences are below, within and above ± `SMALLEST` (Benavoli and others, 2017)."""
    values = np.concatenate([[0.0], observed])  # with a prior observation of no difference that weighs 1/2
    weights = np.random.default_rng(0).dirichlet([0.5, *[1.0] * len(observed)], 20_000)
    averages = np.add.outer(values, values) / 2
    regions = (averages < -SMALLEST, np.abs(averages) <= SMALLEST, averages > SMALLEST)
    shares = [((weights @ region) * weights).sum(1) for region in regions]
    return tuple(float((np.argmax(shares, axis=0) == region).mean()) for region in range(3))


def registered(frame: pd.DataFrame) -> dict[tuple[str, str], Comparison]:
    """Return the registered comparisons by question and budget. Validation rows choose the arms that are compared."""
    results = {}
    for budget in BUDGETS:
        valid = means(frame, budget, "valid").mean()
        logic, pointwise, control = (str(valid[arms].idxmax()) for arms in (LOGIC, POINTWISE, list(CONTROL.values())))
        pairs = {"logic: control": (logic, CONTROL[logic]), "logic: Max": (logic, "max")}
        pairs |= {"pairing": (control, pointwise), "gain": (logic, pointwise)}
        results |= {(question, budget): compare(frame, budget, *pair) for question, pair in pairs.items()}
    return results


def answers(results: dict[tuple[str, str], Comparison]) -> dict[str, bool]:
    """Return which of the registered outcomes hold."""
    logic = all(results[f"logic: {rival}", budget].beats for rival in ("control", "Max") for budget in BUDGETS)
    width = results["gain", "params"].beats and not results["gain", "outputs"].beats
    held = {"logic matters": logic, "pairing matters": results["pairing", "params"].beats, "width matters": width}
    return held | {"none": not any(held.values())}


def fill(page: str, frame: pd.DataFrame, first: pd.DataFrame, sizes: pd.DataFrame) -> str:
    """Return the page with its marked blocks made again."""
    blocks = {"answer": answer_block(frame), "where": where_block(frame), "accuracy": accuracy_block(frame)}
    blocks |= {"cost": cost_block(frame, sizes), "first": first_block(first)}
    for name, text in blocks.items():
        page = re.sub(rf"(<!-- {name} -->\n).*?(<!-- end -->)", lambda m, text=text: f"{m[1]}{text}\n{m[2]}", page, flags=re.S)
    return page


def answer_block(frame: pd.DataFrame) -> str:
    """Return which outcomes hold, and the registered comparisons."""
    results = registered(frame)
    held = ", ".join(f"{name}: **{'yes' if value else 'no'}**" for name, value in answers(results).items()).capitalize()
    datasets, diverged = frame["dataset"].nunique(), (frame["state"] == "diverged").sum()
    return f"{len(frame):,} runs on {datasets} datasets, {diverged} of them diverged. {held}.\n\n{_comparisons(results)}"


def first_block(frame: pd.DataFrame) -> str:
    """Return the step times and the comparisons under ``step-time`` in its first run."""
    results = {key: each for key, each in registered(frame).items() if key[1] == "step-time"}
    return f"{_accuracy_of_steps(pd.read_csv(EVIDENCE / 'first-sizes.csv'))}\n\n{_comparisons(results)}"


def _accuracy_of_steps(sizes: pd.DataFrame) -> str:
    again = (sizes["step_time"] / 1.5 - 1).abs()
    met = f"{(again <= 0.1).sum()} of {len(again)} step times are within 10 % of the target"
    return f"Measured again, {met}; the largest deviation is {again.max():.1%}."


def _comparisons(results: dict[tuple[str, str], Comparison]) -> str:
    lines = [
        [question, budget, f"`{c.a}` − `{c.b}`", f"{c.difference:+.2f} ± {c.seeds:.2f}", f"± {c.datasets:.2f}", f"{c.p:.2g}"]
        + [" / ".join(f"{p:.2f}" for p in c.bayes), "**beats**" if c.beats else "does not beat"]
        for (question, budget), c in results.items()
    ]
    titles = ["question", "budget", "compared", "points ± seeds", "± datasets", "p", "worse / equal / better", "as registered"]
    return _markdown(titles, lines, 3)


def where_block(frame: pd.DataFrame) -> str:
    """Return the registered comparisons by dataset, with 95 % intervals over seeds."""
    titles, columns = ["dataset"], [sorted(set(frame["dataset"]))]
    for (_, budget), c in registered(frame).items():
        part = differences(frame, budget, c.a, c.b)
        half = stats.t.ppf(1 - ALPHA / 2, SEEDS - 1) * np.sqrt(part["var"] / SEEDS)
        titles.append(f"{budget}: `{c.a}` − `{c.b}`")
        columns.append([f"{mean:+.1f} ± {width:.1f}" for mean, width in zip(part["mean"], half, strict=True)])
    return _markdown(titles, zip(*columns, strict=True), 1)


def accuracy_block(frame: pd.DataFrame) -> str:
    """Return test accuracies under equal parameters, and their means under all budgets."""
    table = means(frame, "params")
    best = table.max(axis=1)
    lines = [[name, *(f"**{v:.1f}**" if v == best[name] else f"{v:.1f}" for v in row)] for name, row in table.iterrows()]
    lines += [[f"mean, equal {budget}", *(f"{v:.2f}" for v in means(frame, budget).mean())] for budget in BUDGETS]
    return _markdown(["equal params", *(f"`{arm}`" for arm in ARMS)], lines, 1)


def cost_block(frame: pd.DataFrame, sizes: pd.DataFrame) -> str:
    """Return the median sizes and step times of the arms, as multiples of ReLU's under equal parameters."""
    sizes = sizes[sizes["dataset"].isin(set(frame["dataset"]))].set_index(["dataset", "activation", "budget"])
    sizes = sizes[["parameters", "outputs", "step_time"]]
    base = sizes.xs(("relu", "params"), level=("activation", "budget")).assign(step_time=1.0)
    table = sizes.div(base, level="dataset").groupby(["activation", "budget"]).median()
    lines = [[f"`{arm}`", *(f"{value:.2f}" for budget in BUDGETS for value in table.loc[(arm, budget)])] for arm in ARMS]
    titles = [f"{budget}: {what}" for budget in BUDGETS for what in ("parameters", "outputs", "step")]
    rates = frame[frame["budget"] == "params"].groupby(["dataset", "activation"])["learning_rate"].first()
    lowest, highest = (rates == 0.01).sum(), (rates == 0.1).sum()
    ends = f"Of the {len(rates)} chosen learning rates, {lowest} are the lowest and {highest} the highest tried."
    note = f"{_accuracy_of_steps(sizes.xs('step-time', level='budget'))} {ends}"
    return f"{_markdown(['arm', *titles], lines, 1)}\n\n{note}"


def _markdown(titles: list[str], lines: Iterable[Sequence[object]], texts: int) -> str:
    rows = [titles, [*["---"] * texts, *["---:"] * (len(titles) - texts)], *lines]
    return "\n".join(f"| {' | '.join(map(str, row))} |" for row in rows)


def draw_arms(frame: pd.DataFrame) -> None:
    """Draw every arm's paired difference from ReLU under the same budget, with 95 % intervals, one panel per dataset."""
    datasets, shown, rows = sorted(set(frame["dataset"])), ARMS[:0:-1], -(-frame["dataset"].nunique() // 3)
    figure, panels = plt.subplots(rows, 3, figsize=(9, 0.6 + 2.8 * rows), sharey=True, squeeze=False, layout="constrained")
    for dataset, axes in zip(datasets, panels.flat, strict=False):
        for shift, (budget, color) in zip((0.25, 0.0, -0.25), BUDGETS.items(), strict=True):
            part = frame[(frame["dataset"] == dataset) & (frame["budget"] == budget)]
            table = part.pivot(index="seed", columns="activation", values="test")
            gains = table[shown].sub(table["relu"], axis=0)
            half, places = stats.t.ppf(1 - ALPHA / 2, SEEDS - 1) * gains.sem(), np.arange(len(shown)) + shift
            axes.errorbar(gains.mean(), places, xerr=half, fmt="o", ms=2.5, lw=1, color=color, label=budget)
        axes.axvline(0, color="#888888", lw=0.8)
        axes.set_title(dataset, fontsize=9)
        axes.set_yticks(range(len(shown)), shown)
        axes.tick_params(labelsize=8)
        axes.grid(alpha=0.3)
    figure.supxlabel("test accuracy minus ReLU's under the same budget, percentage points, with 95 % intervals", fontsize=9)
    figure.legend(*panels.flat[0].get_legend_handles_labels(), loc="outside upper center", ncols=3, fontsize=9, frameon=False)
    figure.savefig(IMAGES / "arms.png", dpi=120, metadata={"Software": None})


def draw_ranks(frame: pd.DataFrame) -> None:
    """Draw a critical-difference diagram per budget: arms joined by a bar do not differ by Nemenyi's test."""
    (figure, panels), k = plt.subplots(3, 1, figsize=(9, 10), layout="constrained"), len(ARMS)
    for budget, axes in zip(BUDGETS, panels, strict=True):
        table = means(frame, budget)
        ranks, p = table.rank(axis=1, ascending=False).mean().sort_values(), stats.friedmanchisquare(*table.T.values).pvalue
        critical = stats.studentized_range.ppf(1 - ALPHA, k, np.inf) * np.sqrt(k * (k + 1) / (12 * len(table)))
        axes.set_title(f"equal {budget}: mean ranks; critical difference {critical:.1f}, Friedman's p = {p:.1g}", fontsize=9)
        joined = [(low, ranks[ranks <= low + critical].max()) for low in ranks]
        bars = [bar for i, bar in enumerate(joined) if i == 0 or bar[1] > joined[i - 1][1]]
        for level, (low, high) in enumerate(bars):
            axes.plot([low - 0.05, high + 0.05], [0.3 - 0.45 * level] * 2, color="#b45309", lw=3)
        for i, (arm, rank) in enumerate(ranks.items()):
            left = i < k / 2
            level, end = -0.45 * len(bars) - 0.9 * min(i, k - 1 - i) - 0.3, 0.6 if left else k + 0.4
            color = "#2563a8" if arm in LOGIC else "#333333"
            axes.plot([rank, rank, end], [1.2, level, level], color=color, lw=0.8)
            axes.text(end, level + 0.1, f"{arm} {rank:.1f}", ha="left" if left else "right", fontsize=8, color=color)
        axes.set(xlim=(0.5, k + 0.5), ylim=(-0.45 * len(bars) - 0.45 * k, 1.2), yticks=[])
        axes.xaxis.tick_top()
        axes.spines[["left", "right", "bottom"]].set_visible(False)
    figure.savefig(IMAGES / "ranks.png", dpi=120, metadata={"Software": None})


if __name__ == "__main__":
    runs, measured = read(), pd.concat(map(pd.read_csv, sorted((EVIDENCE / "sizes").glob("*.csv"))))
    IMAGES.mkdir(parents=True, exist_ok=True)
    draw_arms(runs)
    draw_ranks(runs)
    PAGE.write_text(fill(PAGE.read_text(encoding="utf-8"), runs, read(first=True), measured), encoding="utf-8")
