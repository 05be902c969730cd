"""Which figures there are to draw of a study's records."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

from matplotlib.figure import Figure
from safetensors.torch import load_file
from torch import Tensor

from boolit.lab.datasets import load, source
from boolit.lab.models import Stacked, restore
from boolit.lab.reports.figures.correlations import correlations, row_correlations
from boolit.lab.reports.figures.networks import Network, learnt_weights, xor_decision
from boolit.lab.reports.figures.results import accuracy_against_parameters, learning_curves, solved_share
from boolit.lab.reports.names import label
from boolit.lab.results.scores import ScoreFormat
from boolit.lab.results.statistics import metric_of, scores
from boolit.lab.results.store import Store
from boolit.lab.runs import Metric, Record

PAIRED = {"test_seen", "test_unseen"}  # the figures of runs that choose pairs
DRAWABLE_WIDTH = 16  # more units than these make a thicket of lines, not a drawing


def study_figures(records: Sequence[Record], store: Store, solved: float | None = None) -> Iterator[tuple[str, str, Figure]]:
    """Name, caption and figure of everything the records can show."""
    metric = metric_of(records)
    found = scores(records, metric.key)
    yield "curves", f"{_words(metric)} by epoch.", learning_curves(records, metric.key)
    if len({(score.activation, score.size) for score in found}) > len({score.activation for score in found}):
        yield "sizes", f"{_words(metric)} against parameters.", accuracy_against_parameters(found, metric.key)
    if solved is not None:
        caption = f"The share of runs whose {_words(metric)} reaches {solved:g}, with its 95 % interval."
        yield "solved", caption, solved_share(found, solved, metric.key, metric.goal)
    kept = [record for record in records if record.state == "finished" and store.weights(record.key).exists()]
    yield from _of_weights(kept, metric, store)


def _of_weights(records: Sequence[Record], metric: Metric, store: Store) -> Iterator[tuple[str, str, Figure]]:
    chosen = choice_of(records, metric)
    best = _best_of_each(records, chosen)
    drawable = [record for record in best if _drawable(record)]
    if drawable:
        baseline = [record for record in drawable[1:] if record.config.activation == "relu"]
        networks = [_network(record, metric, store.weights(record.key)) for record in [*baseline, drawable[0]]]
        caption = f"The weights that {_best_seed(chosen)} learnt: wider lines for larger ones, orange positive, blue negative."
        yield "weights", caption, learnt_weights(*networks)
    if any(not _drawable(record) for record in best if record.config.model["name"] == "mlp"):
        caption = "How alike the rows of the first weight matrix are that a gate reads together, and all other pairs of rows."
        yield "correlations", caption, row_correlations(correlations(store, records=records))
    yield from _of_pairs(best, chosen, store)
    planes = [record for record in best if record.config.inputs == [2] and metric.percent]
    if planes:
        samples = load(source(planes[0].config.data)).splits["train"]
        models = {r.config.activation: _model(r, store.weights(r.key)) for r in reversed(planes)}
        caption = f"What {_best_seed(chosen)} of each activation makes of the plane, far beyond its training samples."
        yield "decisions", caption, xor_decision(models, samples.x, samples.y.flatten())


def _of_pairs(best: Sequence[Record], chosen: Metric, store: Store) -> Iterator[tuple[str, str, Figure]]:
    choosing = [record for record in best if set(record.metrics) >= PAIRED]
    if choosing:
        from boolit.lab.reports.figures.seen_unseen import seen_against_unseen, seen_unseen

        caption = (
            f"What {_best_seed(chosen)} of each activation gets right of seen and of unseen pairs, from a low bias of the "
            "latter to a high one; along a grey line, the harmonic mean of both (its number, in percent) is the same."
        )
        yield "seen-unseen", caption, seen_against_unseen([seen_unseen(record, store) for record in choosing])


def choice_of(records: Sequence[Record], metric: Metric) -> Metric:
    """What the runs that are drawn are chosen by: the study's metric on ``valid``, or else on ``train``; never on ``test``."""
    known = set.intersection(*(set(record.metrics) for record in records)) if records else set()
    others = (metric.model_copy(update={"split": split}) for split in ("valid", "train"))
    return next((other for other in others if other.key in known), Metric(name="loss", split="train"))


def _best_seed(chosen: Metric) -> str:
    return f"the seed with the best {_words(chosen)}"


def _best_of_each(records: Sequence[Record], metric: Metric) -> list[Record]:
    """The best run of every activation, the best one first."""
    ranked = sorted(records, key=lambda record: -metric.merit(record.metrics[metric.key]))
    first: dict[str, Record] = {}
    for record in ranked:
        first.setdefault(record.config.activation, record)
    return list(first.values())


def _network(record: Record, metric: Metric, path: Path) -> Network:
    weights = load_file(path)
    layers = [weights[f"linear.{i}.weight"] for i in range(len(record.config.width) + 1)]
    spec, shown = record.config.activation, ScoreFormat(metric.percent, 1 if metric.percent else 3)
    return Network(spec, layers, f"{label(spec)}: {shown.number(record.metrics[metric.key])}{shown.unit}")


class _Single:
    """A stacked network of one run as a function of a batch."""

    def __init__(self, network: Stacked) -> None:
        self.network = network

    def __call__(self, x: Tensor) -> Tensor:
        outputs: Tensor = self.network(x.unsqueeze(0))
        return outputs[0]


def _model(record: Record, path: Path) -> _Single:
    return _Single(restore(record.config, load_file(path)))


def _drawable(record: Record) -> bool:
    return record.config.model["name"] == "mlp" and max(record.config.width) <= DRAWABLE_WIDTH


def _words(metric: Metric) -> str:
    return metric.key.replace("_", " ")
