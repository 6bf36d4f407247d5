"""The source `simulated`: a node of AMD GPUs that is made up, for demonstrations and drills.

It answers like the package `amdsmi` of ROCm 10.1 and like the kernel's files, so the real sessions
and collectors run over it unchanged. `spec` says what to simulate and is all that the daemon loads;
`source` opens the sessions in the worker. Between them: `models` (facts of the hardware), `signals`
(courses over time in closed form), `scenarios` (what happens to a GPU), `node` (the state at a
moment), `amdsmi` and `files` (the two ways to read it).

Nothing in here can be mistaken for hardware: names end in "(simulated)", the driver's version and
ROCm's are "simulated", serial numbers begin with SIM, and no process has a number that Linux gives.
"""
