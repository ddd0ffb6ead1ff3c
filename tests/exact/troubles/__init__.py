"""The troubles, each with the options and the cases of its own."""
