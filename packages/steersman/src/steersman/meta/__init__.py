"""Common types of Kubernetes objects: metadata, conditions, references, quantities, and schema markers."""

from steersman.meta.apply import ApplyConfiguration
from steersman.meta.codec import decode, decode_builtins, encode, to_builtins
from steersman.meta.condition import Condition, condition_transitions, find_condition, is_true, set_condition
from steersman.meta.custom_resource import PrinterColumn, Resource, Scale, Spec, Status, resource
from steersman.meta.duration import Duration
from steersman.meta.frozen import FrozenDict, FrozenStruct
from steersman.meta.markers import (
    Field,
    Rule,
    at_least_one_of,
    at_most_one_of,
    discriminated,
    exactly_one_of,
    schema,
)
from steersman.meta.object import ManagedFieldsEntry, Object, ObjectMeta, OwnerReference
from steersman.meta.quantity import Quantity
from steersman.meta.resource_names import ApiResource, ObjectKey
from steersman.meta.unstructured import ObjectMetadata, Unstructured, metadata_only, unstructured

__all__ = [
    "ApiResource",
    "ApplyConfiguration",
    "Condition",
    "Duration",
    "Field",
    "FrozenDict",
    "FrozenStruct",
    "ManagedFieldsEntry",
    "Object",
    "ObjectKey",
    "ObjectMeta",
    "ObjectMetadata",
    "OwnerReference",
    "PrinterColumn",
    "Quantity",
    "Resource",
    "Rule",
    "Scale",
    "Spec",
    "Status",
    "Unstructured",
    "at_least_one_of",
    "at_most_one_of",
    "condition_transitions",
    "decode",
    "decode_builtins",
    "discriminated",
    "encode",
    "exactly_one_of",
    "find_condition",
    "is_true",
    "metadata_only",
    "resource",
    "schema",
    "set_condition",
    "to_builtins",
    "unstructured",
]
