"""What runs behind a key in a task: windows, joins and aggregates, and the port through which a task runs them and functions of
users. Knows neither Spark nor what users write.
"""
