"""Accepted differences between both servers, by case."""

from __future__ import annotations

# Cases that run on the real server only.
NOT_IMPLEMENTED: dict[str, str] = {
    "decoding-responses_can_be_yaml": "responses are JSON only, other Accept headers get 406",
    "costs-object_budget": "rules that may exceed the budget get 501",
}

_MORE_KINDS = "the real server has more kinds and groups"

# Cases that pass on both servers with differences that they do not check.
KNOWN_DIFFERENCES: dict[str, str] = {
    "reading-pages_across_namespaces": "objects of other cases are in pages of the whole cluster",
    "access_roles-cluster_role_in_all_namespaces": "objects of other cases are listed across namespaces",
    "namespaces-initial_namespaces_exist": "namespaces of other cases are listed as well",
    "reading-a_list_of_a_namespaced_path_needs_a_namespaced_kind": "404 as text in place of a Status",
    "discovery-a_group_version_that_is_not_served_is_not_found": "404 as text in place of a Status",
    "definitions-deletion_is_reported": "the real server marks the objects some time later",
    "subresources-resize_changes_nothing_else": "the real server gives ignored fields to the manager of the resize",
    "subresources-budget_is_exhausted": "the in-memory eviction writes no condition and owns no field of the budget",
    "reviews-self_subject_review": "the administrators have different names",
    "access_reviews-self_subject_rules_review": "the order of rules",
    "access_reviews-rules_review_with_missing_role": "the order of rules",
    **dict.fromkeys(
        (
            "custom-discovery_lists_kinds",
            "custom-aggregated_discovery_lists_kinds",
            "subresources-discovery_lists_subresources",
            "access_roles-non_resource_paths",
            "discovery-groups_list_their_versions",
            "discovery-resources_have_kind_scope_and_verbs",
            "discovery-namespaces_have_no_deletecollection",
            "discovery-aggregated_discovery",
            "discovery-version",
        ),
        _MORE_KINDS,
    ),
}
