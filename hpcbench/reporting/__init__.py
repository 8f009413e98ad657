"""The report of an experiment: tables gathered once, written by each report of the plan in its format.

`context` gathers the tables (`report_tables` describes them), `sections` puts them in order and words,
`formats/` makes the files, `figures/` draws, `writing` does all of it.
"""
