"""What is not alike on both servers, case by case: these lists are there to shrink."""

from __future__ import annotations

# Cases that run on the real server alone, and who the in-memory server waits for.
NOT_IMITATED_YET: dict[str, str] = {
    "decoding-answers_can_be_yaml": "answers are JSON alone: what accepts nothing else is refused with 406",
    "objects-events_of_the_newer_group_are_checked": "the two groups of Events are two collections here",
    "objects-events_of_both_groups_are_the_same": "the two groups of Events are two collections here",
}

_KINDS = "the real server has more kinds and groups than the in-memory one"
_CRDS = "who owns the parts of a definition is told in other entries"
_HOOKS = "who owns the parts of a webhook configuration is told in other entries"

# Cases that pass on both servers though the answers differ in something that they do not look at.
DIFFERENTLY_ANSWERED: dict[str, str] = {
    "reading-pages_across_namespaces": "what other cases left counts in pages of the whole cluster",
    "access_roles-a_cluster_role_everywhere": "what other cases left is listed across namespaces",
    "namespaces-the_first_namespaces_are_there": "the namespaces of other cases are listed, too",
    "reading-a_list_of_a_namespaced_path_needs_a_namespaced_kind": "404 as text, not as a Status",
    "discovery-a_group_version_that_is_not_served_is_not_found": "404 as text, not as a Status",
    "custom-definitions_tell_that_they_are_served": _CRDS,
    "tables-what_many_expressions_come_to": _CRDS,
    "tables-what_texts_many_expressions_make": _CRDS,
    "tables-why_many_definitions_are_refused": _CRDS,
    "tables-why_many_values_are_refused": _CRDS,
    "definitions-a_definition_is_completed": _CRDS,
    "definitions-names_that_are_taken_are_not_accepted": _CRDS,
    "definitions-a_changed_schema_is_used_from_then_on": _CRDS,
    "definitions-what_was_stored_is_read_by_the_present_schema": _CRDS,
    "definitions-what_was_valid_before_may_stay": _CRDS,
    "definitions-a_removed_definition_takes_its_objects_along": _CRDS,
    "definitions-a_definition_tells_that_it_is_being_removed": _CRDS,
    "definitions-custom_resources_while_their_definition_goes": _CRDS,
    "statuses-of_a_definition": _CRDS,
    "definitions-stored_versions_are_remembered": _CRDS,
    "definitions-a_definitions_status_is_written_apart": _CRDS,
    "conversions-a_webhook_refuses_to_convert": _CRDS,
    "conversions-versions_that_convert_to_nothing": _CRDS,
    "conversions-a_webhook_converts": "managers of several versions own what has the same path in each",
    "versions-an_object_is_written_in_any_version": "managers of several versions own what has the same path in each",
    "subresources-scale_is_set": "the time of an entry that scale made",
    "admission_answers-a_scale_is_judged_and_changed": "the time of an entry that scale made",
    "subresource_bodies-a_patched_scale_is_checked": "a scale that changes nothing makes its sender the owner there",
    "subresource_bodies-a_scale_without_a_number_is_of_none": "the time of an entry that scale made",
    "subresources-a_budget_is_used_up": "an eviction writes no condition and owns no field of the budget",
    "objects-service_accounts_name_secrets": "the order of items that a strategic merge patch adds",
    "reviews-one_may_ask_who_one_is": "the administrators of the two servers have different names",
    "access_escalation-the_verb_escalate": "an empty list of rules is null there",
    "access_reviews-what_may_i": "the order of rules",
    "access_reviews-what_may_i_with_a_missing_role": "the order of rules",
    "admission_questions-labels_of_the_object": _HOOKS,
    "admission_questions-match_conditions": _HOOKS,
    "admission_questions-a_match_condition_that_fails": _HOOKS,
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
        _KINDS,
    ),
}
