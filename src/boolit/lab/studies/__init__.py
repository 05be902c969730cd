"""Studies: what is compared with what, as a TOML file; and the plan that follows from it."""

from boolit.lab.studies.files import StudyFile, list_studies, load_study
from boolit.lab.studies.planner import Cohort, Plan, check_memory, plan
from boolit.lab.studies.schema import Study

__all__ = ["Cohort", "Plan", "Study", "StudyFile", "check_memory", "list_studies", "load_study", "plan"]
