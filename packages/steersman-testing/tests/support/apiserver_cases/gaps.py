"""Accepted differences between both servers, by case."""

from __future__ import annotations

# Cases that run on the real server only.
NOT_IMPLEMENTED: dict[str, str] = {
    "decoding-answers_can_be_yaml": "answers are JSON alone: what accepts nothing else is refused with 406",
    "costs-rules_have_a_budget_on_each_object": "what may cost too much is refused with 501",
}

_MORE_KINDS = "the real server has more kinds and groups than the in-memory one"

# Cases that pass on both servers with differences that they do not check.
KNOWN_DIFFERENCES: dict[str, str] = {
    "reading-pages_across_namespaces": "what other cases left counts in pages of the whole cluster",
    "access_roles-a_cluster_role_everywhere": "what other cases left is listed across namespaces",
    "namespaces-the_first_namespaces_are_there": "the namespaces of other cases are listed, too",
    "reading-a_list_of_a_namespaced_path_needs_a_namespaced_kind": "404 as text, not as a Status",
    "discovery-a_group_version_that_is_not_served_is_not_found": "404 as text, not as a Status",
    "definitions-a_definition_tells_that_it_is_being_removed": "its objects are marked some time later there",
    "subresources-a_budget_is_used_up": "an eviction writes no condition and owns no field of the budget",
    "reviews-one_may_ask_who_one_is": "the administrators of the two servers have different names",
    "access_reviews-what_may_i": "the order of rules",
    "access_reviews-what_may_i_with_a_missing_role": "the order of rules",
    **dict.fromkeys(
        (
            "custom-discovery_names_the_kinds",
            "custom-discovery_in_one_document",
            "subresources-subresources_are_told_by_discovery",
            "access_roles-paths_that_are_no_resources",
            "discovery-groups_list_their_versions",
            "discovery-resources_tell_kind_scope_and_verbs",
            "discovery-namespaces_are_not_deleted_together_says_discovery",
            "discovery-the_same_is_told_in_one_document",
            "discovery-the_version_is_told",
        ),
        _MORE_KINDS,
    ),
}
