"""Two processes of torchrun learn what one learns, and one command starts them."""

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from boolit.lab.execute import execute
from boolit.lab.results.store import Store
from boolit.lab.runs import RunConfig
from boolit.lab.studies import load_study, plan
from boolit.lab.training import Job, Outcome, train
from boolit.lab.training.distributed import all_agree, is_leader, processes, rank, size
from boolit.lab.training.single import BatchShard

Config = Callable[..., RunConfig]
ByOne = Callable[[RunConfig], Outcome]
SCRIPT = Path(__file__).with_name("together.py")
DIGITS = {"name": "digits", "validation": 1300 / 1437}
NORMALISED = {"data": DIGITS, "model": {"name": "mlp", "normalisation": "batch"}, "width": [8], "activation": "or_ail"}
PICTURES = {"data": DIGITS, "model": {"name": "cnn"}, "width": [4] * 8, "activation": "or_ail"}


TORCHRUN = ("-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2")


def python(*arguments: str | Path) -> str:
    environment = os.environ | {"OMP_NUM_THREADS": "1"}
    command = [sys.executable, *map(str, arguments)]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=600)
    assert done.returncode == 0, done.stderr
    return done.stdout


def learnt_by_two(configs: list[RunConfig], folder: Path, by_one: ByOne) -> list[list[float]]:
    """The losses of all steps by two processes, having compared them with those after a break and with those by one.

    In float64: two processes order their sums differently from one, which moves a loss by 1e-4 and more in float32. Here a
    gradient is off by at most 100 terms · u · 10, Adam divides that by at least eps = 1e-8 and multiplies it by a rate of
    0.01: in 60 steps, a difference growing tenfold, 7e-5 at the very worst; a wrong gradient is off by more in one step.
    """
    (folder / "configs.json").write_text(json.dumps([own.to_dict() for own in configs]))
    python(SCRIPT, folder / "configs.json", folder / "results.json")
    found = json.loads((folder / "results.json").read_text())
    for own, (unbroken, resumed) in zip(configs, found, strict=True):
        assert unbroken == resumed
        if own.training.get("sync_batch_norm", True):
            outcome = by_one(own)
            assert unbroken == [pytest.approx(outcome.steps, abs=1e-4), pytest.approx(outcome.metrics, abs=1e-4)]
    return [steps for (steps, _), _ in found]


@pytest.fixture
def by_one(in_double: Callable[[Job], Job]) -> Callable[[RunConfig], Outcome]:
    """By one process, and alone: with an option that changes nothing, but has it trained so."""

    def trained(config: RunConfig) -> Outcome:
        finished = train(in_double(Job.of([config.replace(training={"clip": 1e9} | config.training)])))
        assert finished is not None
        return finished.outcomes[0]

    return trained


RECIPE = {"epochs": 2, "batch": 16}
PAIRS = {
    "data": {"name": "composed", "attributes": 3, "objects": 4, "listed": 0.9, "samples": 100, "features": 6, "negatives": 3},
    "model": {"name": "tmn", "attributes": 3, "objects": 4, "vectors": 16, "modules": 3, "embedding": 4},
    "width": [8],
    "activation": "or_ail",
}
EVERYTHING = {"epochs": 1, "accumulate": 2, "clip": 0.1, "ema": 0.9, "augmentation": "jitter"}


def test_two_processes_learn_as_one_does(tmp_path: Path, config: Config, by_one: ByOne) -> None:
    separate = config(**NORMALISED, training=RECIPE | {"sync_batch_norm": False})
    # Adam would make steps of gradients that are round-off only: those of what a batch norm takes away again.
    composed = config(
        **PAIRS, training=RECIPE | {"optimiser": "sgd", "learning_rate": 0.5, "patience": 1, "patience_on": "auc"}
    )
    configs = [config(training=EVERYTHING), config(**NORMALISED, training=RECIPE), separate, composed]
    _, together, apart, _ = learnt_by_two(configs, tmp_path, by_one)
    assert apart[0] != pytest.approx(together[0], abs=1e-4)


@pytest.mark.slow
def test_two_processes_learn_as_one_does_from_pictures_and_at_a_rate_they_find(
    tmp_path: Path, config: Config, by_one: ByOne
) -> None:
    pictures = config(**PICTURES, training=RECIPE | {"accumulate": 2})
    learnt_by_two([pictures, config(training=EVERYTHING | {"learning_rate": "find"})], tmp_path, by_one)


def test_the_command_is_the_same_and_so_is_the_store(tmp_path: Path) -> None:
    sets = ["data.train=64", "data.test=32", "training.epochs=2", "training.batch=16", "sweep.activation=['relu','xnor_ail']"]
    sets += ["training.optimiser='sgd'"]  # Adam would make whole steps of gradients that are round-off only
    options = [option for each in sets for option in ("--set", each)]
    command = (*TORCHRUN, "-m", "boolit", "run", "parity", "--seeds", "1", *options, "--json", "--out", tmp_path / "two")
    summary = json.loads(python(*command))["summary"]
    assert (summary["trained"], summary["undone"]) == (2, 0)
    with Store(tmp_path / "one") as store:
        execute(plan(load_study("parity"), seeds=1, sets=sets), store)
        alone = store.records()
    with Store(tmp_path / "two") as store:
        for ours, theirs in zip(store.records(), alone, strict=True):
            assert ours.key == theirs.key
            assert ours.environment["processes"] == 2
            assert ours.history.keys() == theirs.history.keys()
            # 8 steps, a rate below 0.1, gradients off by 20 terms · 2⁻²⁴ · 10, a difference growing tenfold: 1e-4.
            for name in ("train_loss", "test_loss"):
                assert ours.history[name] == pytest.approx(theirs.history[name], abs=1e-4)


def test_a_process_alone_waits_for_nobody(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WORLD_SIZE", "1")
    monkeypatch.setenv("RANK", "0")
    with processes():
        assert (size(), rank(), is_leader()) == (1, 0, True)
        assert not all_agree(False)


@pytest.mark.parametrize("processes_", [1, 2, 3])
@pytest.mark.parametrize("micro_batches", [1, 2])
def test_shares_cover_everything_once(processes_: int, micro_batches: int) -> None:
    shares = [BatchShard(micro_batches, processes_, rank) for rank in range(processes_)]
    batch = torch.arange(12)
    taken = torch.stack([share.take(batch, 0) for share in shares])
    assert sorted(taken.flatten().tolist()) == batch.tolist()
    halves = taken.view(processes_, micro_batches, -1).transpose(0, 1).flatten(1)
    assert torch.equal(halves, batch.view(micro_batches, -1))
    assert [row for share in shares for row in range(*share.part(7).indices(7))] == list(range(7))
    moments = {share.step_number(step, piece) for share in shares for step in range(3) for piece in range(micro_batches)}
    assert moments == set(range(3 * processes_ * micro_batches))
