"""An experiment's files for all readers: typed, incremental, loose and archived alike.

    workers     runs of workers with their events, all of them or only new events
    readings    readings of their monitors
    attempts    which worker had which shard, when, and with how many answers
    turns       turns of agents: the lines of one sample, or of all
    answer      single answers; `answers` gives the answers of a run task as frames
    scores      files of scores, a row a sample
    metrics_json, performance_json
                what evaluation writes: one type for the writer and all readers
    usage       GPU-hours, as written at the end
    as_written  the resolved plan, the manifest, a gate's verdict, a report's summary
    logs        every log of events, whole; text logs of jobs and engines

Status, resume, usage, reports, exports and the portal read through this package. An import contract keeps all
other packages from the archives, and `tests/unit/test_view_alone.py` from every other file that they do not
write themselves.
"""
