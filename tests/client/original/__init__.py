"""Tests of the original producer and consumers."""
