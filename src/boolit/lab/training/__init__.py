"""Training: many runs at once, each as if it were alone."""

from boolit.lab.training.job import Job, bytes_per_run
from boolit.lab.training.recipe import Recipe
from boolit.lab.training.train import Checkpoint, Outcome, train
from boolit.lab.training.trainer import Training

__all__ = ["Checkpoint", "Job", "Outcome", "Recipe", "Training", "bytes_per_run", "train"]
