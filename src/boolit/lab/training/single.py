"""Networks trained one by one, each a plain module with torch's optimizer, autocast, gradient scaler and DDP.

Runs of small networks train side by side, one thread per run: threads never wait for each other inside an operation, and no sum
is split among threads. Large networks train alone with all threads, or with several processes under torchrun.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext
from typing import Any, TypeVar

import torch
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel

from boolit.errors import UserError
from boolit.lab.common.devices import thread_pool
from boolit.lab.models import Family
from boolit.lab.models.base import SeededDropout
from boolit.lab.training import distributed
from boolit.lab.training.job import Job
from boolit.lab.training.recipe import HYPER, OPTIMIZERS, Precision, Recipe
from boolit.lab.training.trainer import Training, mean_of_run, scores, tensors_under

PIECE = 256  # samples per call in evaluations, so that they need no more memory than training
HALVES: dict[Precision, torch.dtype] = {"bfloat16": torch.bfloat16, "float16": torch.float16}
FUSED = ("cpu", "cuda")  # devices with fused optimizers
NORMS = (nn.modules.batchnorm._BatchNorm, nn.LayerNorm)
T = TypeVar("T")


class PlainTraining(Training):
    """Runs as separate networks. With several processes there is one run, and each process trains a part of its batches."""

    def __init__(self, job: Job, keep_weights: bool = False) -> None:
        super().__init__(job, keep_weights)
        processes = distributed.size()
        if job.batch % processes:
            raise UserError(f"a batch of {job.batch} samples is not a multiple of {processes} processes; change training.batch")
        self.networks = [job.build(run).to(self.device) for run in range(job.runs)]
        if processes > 1 and self.device.type != "cpu":
            self.networks = [nn.SyncBatchNorm.convert_sync_batchnorm(network) for network in self.networks]
        self._callable: Sequence[nn.Module] = self.networks
        if processes > 1:
            self._callable = [DistributedDataParallel(network) for network in self.networks]
        self.optimizers = [
            make_optimizer(network, recipe, job.family, self.device)
            for network, recipe in zip(self.networks, job.recipes, strict=True)
        ]
        half = job.recipe.precision == "float16"
        self.scalers = [torch.amp.GradScaler(self.device.type, enabled=half) for _ in self.networks]
        self._best: dict[int, dict[str, Tensor]] = {}
        # A GPU runs one network after the other; a CPU as many as there are threads.
        threads = torch.get_num_threads() if self.device.type == "cpu" else 1
        self._pool = thread_pool(min(job.runs, threads), max(1, threads // job.runs)) if min(job.runs, threads) > 1 else None

    def state(self) -> dict[str, Tensor]:
        """Return everything that the training resumes from."""
        state = super().state()
        for run, (network, optimizer) in enumerate(zip(self.networks, self.optimizers, strict=True)):
            state |= {f"network.{run}.{name}": values for name, values in network.state_dict().items()}
            state |= {f"best.{run}.{name}": values for name, values in self._best.get(run, {}).items()}
            for number, moments in optimizer.state_dict()["state"].items():
                state |= {f"optimizer.{run}.{number}.{name}": v for name, v in moments.items() if isinstance(v, Tensor)}
            if scaler := self.scalers[run].state_dict():
                state[f"scaler.{run}"] = torch.tensor([scaler["scale"], scaler["_growth_tracker"]], dtype=torch.float64)
        return state

    def load_state(self, state: Mapping[str, Tensor]) -> None:
        """Continue from a state."""
        super().load_state(state)
        for run, (network, optimizer) in enumerate(zip(self.networks, self.optimizers, strict=True)):
            network.load_state_dict(tensors_under(state, f"network.{run}."))
            self._best |= {run: best} if (best := tensors_under(state, f"best.{run}.")) else {}
            moments: dict[int, dict[str, Tensor]] = {}
            for key, values in tensors_under(state, f"optimizer.{run}.").items():
                number, name = key.split(".")
                moments.setdefault(int(number), {})[name] = values
            optimizer.load_state_dict({"state": moments, "param_groups": optimizer.state_dict()["param_groups"]})
            if (scaler := self.scalers[run]).is_enabled():
                scale, tracker = state[f"scaler.{run}"].tolist()
                scaler.load_state_dict(scaler.state_dict() | {"scale": scale, "_growth_tracker": int(tracker)})

    def weights(self, run: int) -> dict[str, Tensor]:
        """Return a run's parameters and buffers."""
        return dict(self.networks[run].state_dict())

    def finish(self) -> None:
        """Restore the weights of every run's best epoch, if they were kept."""
        for run, best in self._best.items():
            self.networks[run].load_state_dict(best)
        if self._best:
            self.active = torch.arange(self.job.runs)

    def _set_rates(self, rates: Tensor) -> None:
        self._rates_of_epoch = rates
        for network in self.networks:
            network.train()

    def _update(self, x: Tensor, y: Tensor) -> None:
        part = distributed.part(x.shape[1])
        x, y = x[:, part.start : part.stop], y[:, part.start : part.stop]
        rates = self._rates_of_epoch[self.at.step].tolist()
        means = self._each(lambda position, run: self._step(run, x[position], y[position], rates[position]))
        self.loss, score = distributed.sum_of_processes(torch.stack(means, 1)).div_(distributed.size())
        self.loss_sum += self.loss
        self.score_sum += score

    def _step(self, run: int, x: Tensor, y: Tensor, rate: float) -> Tensor:
        """Train one network on its batch; return the mean loss and score."""
        network, optimizer, scaler = self._callable[run], self.optimizers[run], self.scalers[run]
        for layer in network.modules():
            if isinstance(layer, SeededDropout):
                layer.step = self.steps * distributed.size() + distributed.rank()
        half = HALVES.get(self.job.recipe.precision)
        with torch.autocast(self.device.type, half) if half else nullcontext():
            outputs = network(x).unsqueeze(0)
        outputs = outputs if outputs.dtype == torch.float64 else outputs.float()
        loss = self.job.loss(outputs, y.unsqueeze(0))
        for group in optimizer.param_groups:
            group["lr"] = rate * group["factor"]
        optimizer.zero_grad()
        scaler.scale(loss.mean()).backward()
        scaler.step(optimizer)
        scaler.update()
        score = scores(self.job.dataset.task, outputs.detach(), y.unsqueeze(0))
        return torch.cat([mean_of_run(loss.detach()), mean_of_run(score)])

    def _forward(self, x: Tensor) -> Tensor:
        def outputs(position: int, run: int) -> Tensor:
            with torch.no_grad():
                return torch.cat([self.networks[run].eval()(piece) for piece in x[position].split(PIECE)])

        return torch.stack(self._each(outputs))

    def _end_epoch(self) -> None:
        if distributed.size() > 1:
            for buffer in self.networks[0].buffers():  # without synchronized batch norm, those of the leader count
                torch.distributed.broadcast(buffer, 0)
        super()._end_epoch()

    def _finite(self) -> Tensor:
        networks = [self.networks[run] for run in self.active.tolist()]
        return torch.tensor([all(bool(v.isfinite().all()) for v in network.parameters()) for network in networks])

    def _save_best(self, better: Tensor) -> None:
        for run in better.nonzero().flatten().tolist():
            self._best[run] = {name: values.clone() for name, values in self.networks[run].state_dict().items()}

    def _shrink(self) -> None:
        self._keep_active(self.learning[self.active])

    def _each(self, work: Callable[[int, int], T]) -> list[T]:
        """Return the results of ``work(position, run)`` for every active run."""
        runs = self.active.tolist()
        if self._pool is None or len(runs) == 1:
            return [work(position, run) for position, run in enumerate(runs)]
        return list(self._pool.map(work, range(len(runs)), runs))


def make_optimizer(network: nn.Module, recipe: Recipe, family: Family, device: torch.device) -> torch.optim.Optimizer:
    """Return the optimizer with one group of parameters per learning-rate factor and weight decay."""
    norms = {id(v) for layer in network.modules() if isinstance(layer, NORMS) for v in layer.parameters(recurse=False)}
    groups: dict[tuple[float, float], dict[str, Any]] = {}
    for name, parameter in network.named_parameters():
        decay = recipe.weight_decay if recipe.decay_norm or id(parameter) not in norms else 0.0
        factor = family.rate_factor(name)
        group = groups.setdefault((factor, decay), {"params": [], "factor": factor, "weight_decay": decay})
        group["params"].append(parameter)
    optimizer = OPTIMIZERS.get(recipe.optimizer)
    hyper = {name: getattr(recipe, name) for name in HYPER} | {**optimizer.options, **recipe.options}
    return optimizer.plain([*groups.values()], hyper, device.type in FUSED)
