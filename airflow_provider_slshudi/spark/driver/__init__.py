"""The code that spark-submit runs: a verb for each job, and the tasks that it starts. No module imports it."""
