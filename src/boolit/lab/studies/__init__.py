"""Studies: what is compared with what, as a TOML file; and the plan that follows from it."""

from typing import TYPE_CHECKING

from boolit._lazy import import_when_used
from boolit.lab.studies.files import StudyFile, list_studies, load_study

if TYPE_CHECKING:
    from boolit.lab.studies.planner import Cohort, Plan, check_memory, plan
    from boolit.lab.studies.schema import Study

__all__ = ["Cohort", "Plan", "Study", "StudyFile", "check_memory", "list_studies", "load_study", "plan"]
__getattr__ = import_when_used(
    __name__,
    {"Study": f"{__name__}.schema", **dict.fromkeys(("Cohort", "Plan", "check_memory", "plan"), f"{__name__}.planner")},
)
