"""Typed views of a store, as functions use them: one module for each way of storing a state."""
