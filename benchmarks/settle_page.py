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
from matplotlib.figure import Figure
from scipy import stats

DOCS = Path(__file__).parents[1] / "docs"
EVIDENCE, PAGE, IMAGES = DOCS / "evidence" / "settle", DOCS / "settle.md", DOCS / "images" / "settle"
BUDGETS = ("params", "outputs", "step-time")
POINTWISE, LOGIC = ("relu", "silu", "tanh"), ("or_ail", "xnor_ail", "or_and_xnor_ail_d")
CONTROL = {"or_ail": "pair_random_or", "xnor_ail": "pair_random_xnor", "or_and_xnor_ail_d": "pair_random_d"}
OTHERS = ("max", "max_min_d", "glu", "bilinear", *CONTROL.values(), "pair_learned")
ARMS = (*POINTWISE, *OTHERS, *LOGIC)
SEEDS, SMALLEST, ALPHA = 10, 0.5, 0.05  # runs of a cell, percentage points that matter, significance level
DRAWS = 20_000
COLORS = {"params": "#2563a8", "outputs": "#b45309", "step-time": "#15803d"}


def read(folder: Path = EVIDENCE) -> pd.DataFrame:
    """Return the runs of all complete datasets, accuracies in percent. A diverged run counts as the worst of its data."""
    frame = pd.concat([pd.read_csv(path) for path in sorted((folder / "runs").glob("*.csv"))])
    counts = frame.groupby("dataset").size()
    frame = frame[frame["dataset"].isin(counts.index[counts == len(BUDGETS) * len(ARMS) * SEEDS])]
    for split in ("valid", "test"):
        worst = frame.groupby(["dataset", "budget"])[f"{split}_accuracy"].transform("min")
        frame[split] = 100 * frame[f"{split}_accuracy"].fillna(worst)
    return frame


def best(frame: pd.DataFrame, budget: str, arms: Sequence[str]) -> str:
    """Return the arm with the highest mean validation accuracy over the datasets. Test rows choose nothing."""
    part = frame[(frame["budget"] == budget) & frame["activation"].isin(arms)]
    return str(part.groupby(["activation", "dataset"])["valid"].mean().groupby("activation").mean().idxmax())


class Comparison(NamedTuple):
    """Paired differences a − b in percentage points, pooled over the datasets with equal weights."""

    a: str
    b: str
    difference: float
    seeds: float  # half the 95 % interval for these datasets, from the paired differences over seeds
    datasets: float  # half the 95 % interval over datasets
    p: float  # Wilcoxon's signed-rank test over datasets
    worse: float  # Bayesian signed-rank test: probabilities of a < b, practically equal, and a > b
    equal: float
    better: float

    @property
    def beats(self) -> bool:
        """Whether a beats b as registered."""
        return self.p < ALPHA and self.difference > 0 and self.difference + self.seeds >= SMALLEST


def compare(frame: pd.DataFrame, budget: str, a: str, b: str) -> Comparison:
    """Compare two arms under a budget."""
    table = frame[frame["budget"] == budget].pivot(index=["dataset", "seed"], columns="activation", values="test")
    grouped = (table[a] - table[b]).groupby("dataset")
    means, n = grouped.mean().to_numpy(), len(grouped)
    error = np.sqrt((grouped.var() / SEEDS).sum()) / n
    seeds = stats.t.ppf(1 - ALPHA / 2, n * (SEEDS - 1)) * error
    datasets = stats.t.ppf(1 - ALPHA / 2, n - 1) * means.std(ddof=1) / np.sqrt(n)
    p = float(stats.wilcoxon(means).pvalue)
    return Comparison(a, b, float(means.mean()), float(seeds), float(datasets), p, *bayes(means))


def bayes(differences: np.ndarray) -> tuple[float, float, float]:
    """Return the probabilities that differences are below, within and above ± `SMALLEST` (Benavoli and others, 2017)."""
    values = np.concatenate([[0.0], differences])  # with a prior observation of no difference that weighs 1/2
    weights = np.random.default_rng(0).dirichlet([0.5, *[1.0] * len(differences)], DRAWS)
    sums = np.add.outer(values, values) / 2
    shares = [
        np.einsum("di,dj,ij->d", weights, weights, part.astype(float), optimize=True)
        for part in (sums < -SMALLEST, np.abs(sums) <= SMALLEST, sums > SMALLEST)
    ]
    winner = np.argmax(shares, axis=0)
    return tuple(float((winner == kind).mean()) for kind in range(3))  # type: ignore[return-value]


def registered(frame: pd.DataFrame) -> dict[tuple[str, str], Comparison]:
    """Return the registered comparisons by hypothesis and budget."""
    results = {}
    for budget in BUDGETS:
        logic, pointwise, control = (best(frame, budget, arms) for arms in (LOGIC, POINTWISE, tuple(CONTROL.values())))
        results["logic against its control", budget] = compare(frame, budget, logic, CONTROL[logic])
        results["logic against Max", budget] = compare(frame, budget, logic, "max")
        results["pairing", budget] = compare(frame, budget, control, pointwise)
        results["gain", budget] = compare(frame, budget, logic, pointwise)
    return results


def answers(results: dict[tuple[str, str], Comparison]) -> dict[str, bool]:
    """Return which of the registered outcomes hold."""
    logic = all(results[f"logic against {rival}", budget].beats for rival in ("its control", "Max") for budget in BUDGETS)
    width = results["gain", "params"].beats and not results["gain", "outputs"].beats
    held = {"logic": logic, "pairing": results["pairing", "params"].beats, "width": width}
    return held | {"none": not any(held.values())}


def ranks(frame: pd.DataFrame, budget: str) -> tuple[pd.Series, float, float]:
    """Return the mean ranks of the arms, Nemenyi's critical difference, and the p-value of Friedman's test."""
    means = frame[frame["budget"] == budget].groupby(["dataset", "activation"])["test"].mean().unstack()
    k, n = len(ARMS), len(means)
    critical = stats.studentized_range.ppf(1 - ALPHA, k, np.inf) / np.sqrt(2) * np.sqrt(k * (k + 1) / (6 * n))
    p = stats.friedmanchisquare(*(means[arm] for arm in ARMS)).pvalue
    return means.rank(axis=1, ascending=False).mean().sort_values(), float(critical), float(p)


def fill(page: str, frame: pd.DataFrame, sizes: pd.DataFrame) -> str:
    """Return the page with its marked blocks made again."""
    make = {"answer": answer_block, "accuracy": accuracy_block, "ranks": ranks_block}

    def block(match: re.Match[str]) -> str:
        name = match[1]
        text = cost_block(frame, sizes) if name == "cost" else make[name](frame)
        return f"<!-- {name} -->\n{text}\n<!-- end -->"

    return re.sub(r"<!-- (\w+) -->\n.*?<!-- end -->", block, page, flags=re.DOTALL)


def answer_block(frame: pd.DataFrame) -> str:
    """Return which outcomes hold, and the registered comparisons."""
    results = registered(frame)
    held = ", ".join(f"{name}: {'yes' if value else 'no'}" for name, value in answers(results).items())
    lines = [
        [what, budget, f"`{c.a}` − `{c.b}`", f"{c.difference:+.2f} ± {c.seeds:.2f}", f"± {c.datasets:.2f}", f"{c.p:.2g}"]
        + [f"{c.worse:.2f} / {c.equal:.2f} / {c.better:.2f}", "**beats**" if c.beats else "does not beat"]
        for (what, budget), c in results.items()
    ]
    titles = ["question", "budget", "compared", "points ± seeds", "± datasets", "p", "worse / equal / better", "as registered"]
    return f"Outcomes over {frame['dataset'].nunique()} datasets: {held}.\n\n{_markdown(titles, lines, 3)}".replace("+-", "−")


def accuracy_block(frame: pd.DataFrame) -> str:
    """Return test accuracies by dataset, one table per budget."""
    parts = []
    for budget in BUDGETS:
        means = frame[frame["budget"] == budget].groupby(["dataset", "activation"])["test"].mean().unstack()[list(ARMS)]
        lines = [
            [name, *(f"**{value:.1f}**" if value == row.max() else f"{value:.1f}" for value in row)]
            for name, row in means.iterrows()
        ]
        lines.append(["mean", *(f"{value:.2f}" for value in means.mean())])
        parts.append(f"Equal `{budget}`:\n\n" + _markdown(["dataset", *(f"`{arm}`" for arm in ARMS)], lines, 1))
    return "\n\n".join(parts)


def ranks_block(frame: pd.DataFrame) -> str:
    """Return mean ranks and Friedman's test."""
    by_budget = {budget: ranks(frame, budget) for budget in BUDGETS}
    lines = [[f"`{arm}`", *(f"{by_budget[budget][0][arm]:.1f}" for budget in BUDGETS)] for arm in by_budget["params"][0].index]
    lines.append(["critical difference", *(f"{by_budget[budget][1]:.1f}" for budget in BUDGETS)])
    lines.append(["p of Friedman's test", *(f"{by_budget[budget][2]:.1g}" for budget in BUDGETS)])
    return _markdown(["mean rank", *BUDGETS], lines, 1)


def cost_block(frame: pd.DataFrame, sizes: pd.DataFrame) -> str:
    """Return sizes and step times by arm and budget, as ratios to ReLU's under equal parameters."""
    sizes = sizes[sizes["dataset"].isin(set(frame["dataset"]))]
    base = sizes[(sizes["activation"] == "relu") & (sizes["budget"] == "params")].set_index("dataset")
    for column in ("parameters", "outputs"):
        sizes = sizes.assign(**{column: sizes[column] / sizes["dataset"].map(base[column])})
    table = sizes.groupby(["activation", "budget"])[["parameters", "outputs", "step_time"]].median()
    lines = [[f"`{arm}`", *(f"{value:.2f}" for budget in BUDGETS for value in table.loc[(arm, budget)])] for arm in ARMS]
    titles = [f"{budget}: {what}" for budget in BUDGETS for what in ("parameters", "outputs", "step")]
    return _markdown(["× ReLU's at equal params", *titles], lines, 1)


def _markdown(titles: list[str], lines: Iterable[Sequence[object]], texts: int) -> str:
    rows = [titles, [*["---"] * texts, *["---:"] * (len(titles) - texts)], *lines]
    return "\n".join(f"| {' | '.join(map(str, row))} |" for row in rows)


def draw_arms(frame: pd.DataFrame) -> None:
    """Draw every arm's paired difference from ReLU under the same budget, with 95 % intervals, one panel per dataset."""
    import matplotlib.pyplot as plt

    datasets = sorted(set(frame["dataset"]))
    shown, rows = [arm for arm in ARMS if arm != "relu"][::-1], -(-len(datasets) // 5)
    figure, panels = plt.subplots(rows, 5, figsize=(13, 0.6 + 3.1 * rows), sharey=True, squeeze=False, layout="constrained")
    for panel in panels.flat[len(datasets) :]:
        panel.set_visible(False)
    for dataset, axes in zip(datasets, panels.flat, strict=False):
        for shift, budget in zip((0.25, 0.0, -0.25), BUDGETS, strict=True):
            part = frame[(frame["dataset"] == dataset) & (frame["budget"] == budget)]
            table = part.pivot(index="seed", columns="activation", values="test")
            differences = table[shown].sub(table["relu"], axis=0)
            half = stats.t.ppf(1 - ALPHA / 2, SEEDS - 1) * differences.sem()
            places = np.arange(len(shown)) + shift
            axes.errorbar(differences.mean(), places, xerr=half, fmt="o", ms=2.5, lw=1, color=COLORS[budget], label=budget)
        axes.axvline(0, color="#888888", lw=0.8)
        axes.set_title(dataset, fontsize=9)
        axes.set_yticks(range(len(shown)), shown, fontsize=7)
        axes.tick_params(axis="x", labelsize=7)
        axes.grid(alpha=0.3)
    figure.supxlabel("test accuracy minus that of ReLU under the same budget, percentage points, with 95 % intervals", fontsize=9)
    figure.legend(*panels.flat[0].get_legend_handles_labels(), loc="outside upper center", ncols=3, fontsize=9, frameon=False)
    _save(figure, "arms")


def draw_ranks(frame: pd.DataFrame) -> None:
    """Draw a critical-difference diagram per budget: arms joined by a bar do not differ by Nemenyi's test."""
    import matplotlib.pyplot as plt

    figure, panels = plt.subplots(3, 1, figsize=(9, 10), layout="constrained")
    for budget, axes in zip(BUDGETS, panels, strict=True):
        mean, critical, p = ranks(frame, budget)
        half = (len(mean) + 1) // 2
        axes.set(xlim=(0.5, len(mean) + 0.5), ylim=(-half - 3.5, 1.2))
        axes.set_title(f"equal {budget}: mean rank, 1 is best; critical difference {critical:.1f}, Friedman p = {p:.1g}", fontsize=9)
        axes.xaxis.tick_top()
        axes.tick_params(labelsize=8)
        axes.set_yticks([])
        axes.spines[["left", "right", "bottom"]].set_visible(False)
        joined = [(low, mean[mean <= low + critical].max()) for low in mean]
        bars = [bar for i, bar in enumerate(joined) if i == 0 or bar[1] > joined[i - 1][1]]
        for level, (low, high) in enumerate(bars):
            axes.plot([low - 0.05, high + 0.05], [0.3 - 0.45 * level] * 2, color="#b45309", lw=3)
        below = 0.3 - 0.45 * len(bars)
        for i, (arm, rank) in enumerate(mean.items()):
            left = i < half
            level = below - 0.9 * (i if left else len(mean) - 1 - i) - 0.6
            end, color = (0.6 if left else len(mean) + 0.4), "#2563a8" if arm in LOGIC else "#333333"
            axes.plot([rank, rank, end], [1.2, level, level], color=color, lw=0.8)
            axes.text(end, level + 0.1, f"{arm} {rank:.1f}", ha="left" if left else "right", fontsize=8, color=color)
        axes.set_ylim(below - 0.9 * half - 0.6, 1.2)
    _save(figure, "ranks")


def _save(figure: Figure, name: str) -> None:
    IMAGES.mkdir(parents=True, exist_ok=True)
    figure.savefig(IMAGES / f"{name}.png", dpi=120, metadata={"Software": None})


def main() -> None:
    """Write the page and the figures."""
    frame, sizes = read(), pd.concat(map(pd.read_csv, sorted((EVIDENCE / "sizes").glob("*.csv"))))
    draw_arms(frame)
    draw_ranks(frame)
    PAGE.write_text(fill(PAGE.read_text(encoding="utf-8"), frame, sizes), encoding="utf-8")


if __name__ == "__main__":
    main()
