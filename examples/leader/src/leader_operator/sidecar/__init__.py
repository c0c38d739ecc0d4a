"""The sidecar leads for its pod, and ends the application in time.

``Sidecar`` is one loop: wait until the application may lead, acquire the Lease, renew it, end all processes of the
application, release the Lease. The design is in the README of the project.
"""
