"""What the exporter costs, over the real AMD SMI on the simulated kernel: `python -m tests.bench`.

Every process runs as in production, but for two things: the daemon polls when it is told to
instead of by the clock (`host`), and the workers' clock takes one poll interval per poll
(`worker`), so that facts on a slower clock are read as often as they are in production.
"""
