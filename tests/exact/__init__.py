"""Troubles that a pipeline meets, each with its cases: none may lose a log, or double one."""
