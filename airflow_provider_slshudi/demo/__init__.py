"""The whole way on one machine."""
