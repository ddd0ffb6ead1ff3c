"""Worlds drawn from a seed: hosts, clocks, names, users, disks and shards less tidy than those of other tests."""
