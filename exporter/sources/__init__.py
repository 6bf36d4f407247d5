"""From where: AMD SMI, ROCm SMI, sysfs and the simulated node, each in a worker process.

`session` says what a source offers to the collectors, `guard` turns raw answers into base units,
`worker` is the process that reads, `supervisor` keeps it alive and on time.
"""
