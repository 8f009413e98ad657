"""Results out of hpcbench and into it: tables for other tools, other kits' logs, and other kits' old results.

`result_tables` produces the rows of one or all experiments in batches; `table_files` writes them as CSV,
JSON, JSONL or Parquet; `columns` describes each column. `kit_logs` writes logs for other kits' viewers.
`read_kits` reads their result folders, and `imports` converts these results into experiments.
"""
