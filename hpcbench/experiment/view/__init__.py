"""What an experiment's files say, for all who ask: typed, incremental, loose and archived alike.

    workers     runs of workers with their events, all at once or only what is new
    readings    what their monitors saw
    attempts    which worker had which shard, when, and what it brought
    answer      single answers; `answers` gives those of a run task as frames
    evaluated   scores and speed of run tasks, damage included
    usage       GPU-hours, as they were written at the end
    logs        every log of events, whole

Status, resume, usage, reports, exports and the portal ask here. An import contract keeps all other rooms from
the archives.
"""
