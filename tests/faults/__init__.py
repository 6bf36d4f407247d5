"""Faults, made in AMD's own libraries on the simulated kernel, and what becomes of them.

Every test shows the same three things: the daemon goes on and answers scrapes at once, no wrong
number comes on the page, and the fault is seen in a metric and told in the log, once when it
starts and once when it ends.
"""
