"""Processes, points at which tests kill them, secrets, the optional Rust package."""
