"""The metrics of a job: what each is called, and how Prometheus reads them. Values come from the driver."""
