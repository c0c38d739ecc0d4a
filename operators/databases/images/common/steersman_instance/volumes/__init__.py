"""Report of the use of volumes on the pod, for storage autogrow."""
