"""CustomResourceDefinitions as the real server takes them: what is dropped, completed, refused and accepted.

Source: ``pkg/apis/apiextensions`` and ``pkg/apiserver/schema`` of ``k8s.io/apiextensions-apiserver`` 1.36.
"""
