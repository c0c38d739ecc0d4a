"""CustomResourceDefinitions: decoding, defaults, validation, status and conversion.

``decoding`` keeps what the Go types keep, and ``crds`` converts definitions to served kinds. ``spec_validation``,
``schema_validation``, ``structural``, ``rule_validation`` and ``default_validation`` validate the spec.
``custom_resource_validation`` validates custom resources, and ``conversion`` converts them between versions.

Source: ``pkg/apis/apiextensions`` and ``pkg/apiserver/schema`` of ``k8s.io/apiextensions-apiserver`` 1.36.
"""
