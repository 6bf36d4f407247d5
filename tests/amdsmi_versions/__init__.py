"""Every release's real AMD SMI wrapper, from PyPI, over a stand-in for its C library.

The wrappers are what drifts: names, keys, units and marks for "no value". They run unchanged, each
in a process of its own, since two can't be imported into one.

* `standin` makes a `libamd_smi.so` with the symbols that a wrapper asks for.
* `child` is the program of those processes: it loads, tells the stand-in its answers, and reads.
"""
