"""Training: many runs at once, each as if it were alone."""

from boolit.lab.training.checkpoint import Checkpoint
from boolit.lab.training.cohort import CohortResult, Outcome, train
from boolit.lab.training.job import Job
from boolit.lab.training.lr_finder import find_learning_rate
from boolit.lab.training.recipe import Recipe
from boolit.lab.training.stacked import StackedTraining

__all__ = ["Checkpoint", "CohortResult", "Job", "Outcome", "Recipe", "StackedTraining", "find_learning_rate", "train"]
