"""What keeps a MySQL server a member of its group: process 1 of the pod, with the server below it."""
