"""Wire types: policies, replay-set lines, cell-log lines, run files."""
