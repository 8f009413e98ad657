"""What an experiment's files say, for all who ask: typed, incremental, loose and archived alike.

    worker_runs(experiment)         every run of every worker, with its events
    WorkerRuns(experiment).look()   the same again and again, reading only what is new
    shard_attempts(experiment, …)   which worker had which shard, and when
    usage_of_file, outcome          what was written at the end

Status, resume, usage, reports, exports and the portal ask here. No other room parses these files.
"""
