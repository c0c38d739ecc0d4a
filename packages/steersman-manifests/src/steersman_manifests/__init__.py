"""Manifests from code: CustomResourceDefinitions and RBAC roles.

``crd`` builds the CustomResourceDefinition of a kind from its class, validates objects without a server, and compares
two versions of a definition. ``rbac`` converts the declarations of controllers to roles. ``manifest_files`` reads
manifests from files, with the YAML rules of Kubernetes in ``yaml_codec``. ``kinds`` imports kinds by module name.

The command and the test tools depend on this package. A running operator does not, since its CRDs and roles are
installed before it starts.
"""
