"""Studies: TOML files that say what is compared, and the plans that follow from them."""

from boolit.lab.studies.planner import Cohort, Plan, SavedStudy, cohorts, load, plan, save
from boolit.lab.studies.study import Study, StudyFile, load_study

__all__ = ["Cohort", "Plan", "SavedStudy", "Study", "StudyFile", "cohorts", "load", "load_study", "plan", "save"]
