"""A simulated amdgpu kernel interface on which AMD's own libraries run unchanged.

* :mod:`tests.kernel.packages` fetches and unpacks the libraries (no root, nothing installed).
* :mod:`tests.kernel.node` writes the ``/sys`` and ``/dev`` tree of a whole GPU node and changes it.
* :mod:`tests.kernel.launch` starts a Python command line on that tree.
* ``shim.c`` answers the ioctls and makes the faults that ``Node.rules`` asks for.
"""
