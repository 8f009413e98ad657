"""Results out of hpcbench and into it: tables for other tools, other kits' logs, and other kits' old results.

`tables` makes the rows of one or all experiments, a batch at a time and never all at once; `writing` puts
them into CSV, JSON, JSONL or Parquet; `columns` says what each column is. `kit_logs` writes what other kits'
viewers open. `kits` takes their result folders apart, and `imports` makes experiments of what it finds.
"""
