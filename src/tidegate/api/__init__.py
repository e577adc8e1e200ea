"""The API that users write against: jobs, streams, functions and state declarations. It builds a
graph and runs nothing itself.
"""
