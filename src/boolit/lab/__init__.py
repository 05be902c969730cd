"""The lab: data, models, trainings, statistics and reports that tell which activation is better (extra ``boolit[lab]``)."""
