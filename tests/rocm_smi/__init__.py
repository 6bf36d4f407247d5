"""ROCm SMI, the real library and its real tool, over the simulated kernel.

* `child` is the process in which the source lives: it opens the source and reads all collectors.
* `conftest` starts it and takes what it says.
"""
