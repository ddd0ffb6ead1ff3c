"""Disks that fill at each page of each step, and files that a loss of power cut at any length."""
