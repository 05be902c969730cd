"""Pictures of a study's trained networks: weights, decisions in the plane, and correlations of weight rows."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import pandas as pd
from matplotlib.figure import Figure
from safetensors.torch import load_file

from boolit.lab.datasets import load
from boolit.lab.models import restore
from boolit.lab.paper.figures.correlations import measure_correlations, row_correlations
from boolit.lab.paper.figures.look import png
from boolit.lab.paper.figures.networks import MLPWeights, learned_weights, xor_decision
from boolit.lab.reports.report import Picture
from boolit.lab.results.names import paper_name
from boolit.lab.results.statistics import ScoreFormat
from boolit.lab.results.store import Store
from boolit.lab.runs import Metric, Result

MAX_DRAWABLE_WIDTH = 16  # lines between more units cannot be told apart
MAX_MAPS = 8  # decision maps of one figure: two rows of four
MAX_RUNS = 200  # of an activation in a figure of correlations


def pictures(store: Store, frame: pd.DataFrame, metric: Metric, order: Sequence[str]) -> Iterator[Picture]:
    """Draw the networks whose weights a study has kept, for `boolit.lab.reports.report.write_report`.

    Of each activation, the seed with the best score on validation or training rows is drawn; test rows choose nothing.
    """
    kept = frame[(frame["state"] == "finished") & frame["key"].map(lambda key: store.weights(key).exists())]
    if kept.empty:
        return
    chosen = choose_by(kept, metric)
    ranked = kept.sort_values(chosen.key, ascending=chosen.goal == "min", kind="stable").groupby("activation", sort=False)
    places = {spec: place for place, spec in enumerate(order)}
    best = ranked.head(1).sort_values("activation", key=lambda specs: specs.map(places))
    results = {result.key: result for result in store.results(best["key"], history=False)}
    runs, seed = [results[key] for key in best["key"]], f"the seed with the best {chosen.key.replace('_', ' ')}"
    perceptrons = [run for run in runs if run.config.model.name == "mlp"]
    small = [run for run in perceptrons if max(run.config.widths, default=0) <= MAX_DRAWABLE_WIDTH]
    if small:
        caption = f"The weights of {seed}: wider lines for larger weights, orange positive, blue negative."
        yield _picture("weights", caption, learned_weights(*(_weights(run, metric, store) for run in _with_relu(small, 2))))
    if len(small) < len(perceptrons):
        caption = (
            "Cosine similarity of the rows of the first weight matrix that a gate reads together (neighbors, if it reads one), "
            "and of all other pairs of rows. Titles: runs × rows; mean and standard deviation of pairs, and of the others."
        )
        measured = measure_correlations(store, frame=kept.groupby("activation").head(MAX_RUNS))
        measured.sort(key=lambda each: places.get(each.activation, len(places)))
        yield _picture("correlations", caption, row_correlations(measured))
    planes = [run for run in runs if run.config.inputs == (2,) and metric.percent]
    if planes:
        caption = (
            f"The probability that {seed} of each activation gives to every point of the plane. The dashed box holds all "
            "training samples (circles negative, squares positive); beyond it, the network extrapolates."
        )
        yield _picture("decisions", caption, _decisions(_with_relu(planes, MAX_MAPS), metric, store))


def choose_by(frame: pd.DataFrame, metric: Metric) -> Metric:
    """Return the metric that chooses the runs to draw: the study's on ``valid`` or ``train``, or the training loss."""
    others = (metric.model_copy(update={"split": split}) for split in ("valid", "train"))
    return next((other for other in others if other.key in frame), Metric.model_validate({"name": "loss", "split": "train"}))


def _picture(name: str, caption: str, figure: Figure) -> Picture:
    return Picture(name, caption, png(figure, caption))


def _with_relu(runs: Sequence[Result], most: int) -> list[Result]:
    """Return the first runs, the last of them replaced by ReLU's if that comes later."""
    relu = [run for run in runs[most:] if run.config.activation == "relu"]
    return [*runs[: most - 1], *relu] if relu else list(runs[:most])


def _weights(run: Result, metric: Metric, store: Store) -> MLPWeights:
    weights, spec = load_file(store.weights(run.key)), run.config.activation
    layers = [weights[f"linear.{layer}.weight"] for layer in range(len(run.config.widths) + 1)]
    return MLPWeights(spec, layers, f"{paper_name(spec, 'mathtext')}: {_score(run, metric)}")


def _decisions(runs: Sequence[Result], metric: Metric, store: Store) -> Figure:
    samples = load(runs[0].config.data).splits["train"]
    models = {}
    for run in runs:
        c = run.config
        models[c.activation] = restore(c.model, c.inputs, c.outputs, c.widths, c.activation, load_file(store.weights(run.key)))
    notes = {run.config.activation: _score(run, metric) for run in runs}
    return xor_decision(models, samples.x, samples.y.flatten(), notes)


def _score(run: Result, metric: Metric) -> str:
    form = ScoreFormat(metric.percent, 1 if metric.percent else 3)
    return f"{metric.key.replace('_', ' ')} {form.number(run.metrics[metric.key])}{form.unit}"
