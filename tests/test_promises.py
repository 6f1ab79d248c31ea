"""docs/security.md promises nothing that no test tries to break, and takes nothing away that no test shows to work."""

import ast

import pytest

from tests.support.markdown import ROOT, sections, table, unquoted

PAGE = sections((ROOT / "docs" / "security.md").read_text(encoding="utf-8"))
BREAKS = {
    "tests/filestore/catalog/test_names_of_strangers.py": [
        "test_a_database_is_nowhere_but_in_the_warehouse",
        "test_a_table_is_nowhere_but_in_the_warehouse",
        "test_a_name_in_a_row_leads_nowhere",
    ],
    "tests/engine/cli/commands/test_serve.py": [
        "test_a_client_reaches_tables_alone",
        "test_settings_in_the_address_of_a_connection_open_no_files",
    ],
    "tests/engine/cli/test_received_table.py": [
        "test_procedures_do_nothing_outside",
        "test_commands_and_readers_do_nothing_outside",
        "test_public_calls_do_nothing_outside",
        "test_sql_does_nothing_outside",
    ],
    "tests/engine/cli/test_one_broken_table.py": [
        "test_a_table_with_broken_files_ends_no_look_at_the_others",
        "test_a_database_that_cannot_be_listed_ends_no_look_at_the_others",
    ],
    "tests/filestore/options/test_options_of_strangers.py": [
        "test_a_planted_option_reaches_nothing_outside",
        "test_what_is_its_openers_is_stored_by_no_user",
    ],
    "tests/engine/dialect/query/test_expressions_of_strangers.py": [
        "test_what_a_stranger_stores_does_not_run",
        "test_spark_finds_no_call_and_no_query_that_was_not_seen",
    ],
    "tests/filestore/options/test_stored_expressions.py": [
        "test_what_could_reach_further_is_refused_where_it_is_stored"
    ],
    "tests/filestore/iceberg/test_metadata_of_strangers.py": ["test_no_path_of_the_metadata_leads_out_of_the_table"],
    "tests/filestore/test_hostile_files.py": [
        "test_no_name_leads_an_operation_out_of_the_table",
        "test_no_value_of_a_file_leads_to_a_raw_error",
        "test_no_bytes_of_a_data_file_lead_to_a_raw_error",
        "test_a_block_of_few_bytes_is_not_any_number_of_rows",
    ],
    "tests/engine/log/test_log_of_strangers.py": [
        "test_a_file_of_a_table_adds_nothing_to_the_clients_but_address_and_tuning"
    ],
    "tests/filestore/options/test_log_login.py": [
        "test_a_login_goes_to_the_brokers_that_the_opener_gave_beside_it_only"
    ],
    "tests/filestore/iceberg/test_rest_catalog.py": ["test_a_login_is_that_of_pyicebergs_configuration"],
    "tests/filestore/maintenance/test_places_of_strangers.py": [
        "test_a_place_outside_is_read_only_where_the_opener_allows_it",
        "test_an_expiry_deletes_replaced_files_inside_of_the_table_only",
        "test_no_link_leads_reads_writes_or_deletions_out_of_the_table",
    ],
    "tests/filestore/maintenance/test_external_places.py": [
        "test_tables_share_a_root_and_none_touches_another",
        "test_a_table_of_another_warehouse_is_no_place",
        "test_an_id_in_a_schema_leads_nowhere",
        "test_a_root_that_the_opener_does_not_allow_is_refused_before_any_file",
    ],
    "tests/filestore/layout/test_special_files.py": [
        "test_no_operation_waits_for_it_or_ends_in_a_raw_error",
        "test_nor_where_a_file_has_rows",
        "test_a_file_of_nothing_but_size_takes_no_memory",
    ],
    "tests/interop/test_interop_hive.py": [
        "test_a_table_that_another_named_in_the_metastore_is_read_and_not_deleted",
        "test_nor_is_a_directory_that_is_no_table",
    ],
    "tests/engine/lineage/store/test_rows_of_strangers.py": ["test_no_value_of_a_column_leads_anywhere"],
    "tests/filestore/layout/test_links.py": [
        "test_a_file_that_is_a_link_out_of_the_table_is_refused_by_name",
        "test_nor_is_a_file_read_that_has_rows",
        "test_a_link_in_place_of_a_lock_makes_no_file_elsewhere",
    ],
    "tests/filestore/layout/test_log_key.py": ["test_only_its_maker_may_read_a_key"],
    "tests/engine/test_placed_tables.py": [
        "test_who_does_not_allow_the_place_sees_the_name_and_touches_nothing",
        "test_a_note_that_came_with_a_warehouse_drops_no_other_table",
    ],
    "tests/engine/log/test_strangers_left_out.py": [
        "test_a_stranger_among_rows_of_before_is_left_out_and_counted",
        "test_a_stranger_at_the_end_reaches_no_reader_and_stops_writers",
        "test_records_of_any_form_reach_no_reader",
    ],
    "tests/logstore/log/test_batch_rows.py": [
        "test_a_range_has_the_tables_rows_and_no_others",
        "test_no_row_of_the_table_is_lost_where_snapshots_expired_or_the_topic_is_compacted",
    ],
    "tests/engine/log/test_strange_records.py": ["test_exactly_the_records_outside_of_batches_are_found"],
    "tests/engine/log/test_signed_markers.py": [
        "test_who_has_the_key_cannot_take_the_place_of_the_next_batch",
        "test_a_copied_marker_brings_no_row_of_another_into_a_batch_that_waits",
    ],
    "tests/logstore/log/test_strangers.py": [
        "test_a_batch_with_another_programs_record_in_it_is_not_committed",
        "test_a_hostile_header_is_a_named_error",
    ],
    "tests/engine/cli/test_cli_config.py": ["test_config_and_doctor_name_what_has_no_effect_and_why"],
    "tests/test_preflight.py": ["test_a_package_with_other_bytes_than_its_hash_is_not_installed"],
    "tests/engine/lineage/test_settings.py": [
        "test_a_secret_does_not_go_to_an_address_that_only_the_catalogs_file_has",
        "test_a_secret_of_the_environment_does_not_go_there_either",
        "test_no_link_leads_lineage_out_of_the_warehouse",
    ],
    "tests/filestore/catalog/test_rest_names.py": ["test_a_redirect_elsewhere_never_carries_the_token"],
    "tests/logstore/format/test_hostile_registry.py": ["test_a_login_does_not_follow_a_redirect_to_another_address"],
    "tests/engine/cli/test_wide_binds.py": ["test_who_may_reach_it_is_said"],
    "tests/engine/follow/test_token.py": [
        "test_who_does_not_send_the_token_reads_no_change",
        "test_no_log_has_a_token",
        "test_a_token_in_the_command_or_that_can_be_guessed_is_refused",
    ],
    "tests/engine/ui/test_console.py": [
        "test_a_page_is_shown_to_who_has_the_token",
        "test_a_page_of_elsewhere_that_leads_its_name_here_is_refused",
        "test_every_answer_forbids_scripts_of_others_and_is_kept_nowhere",
        "test_hostile_names_and_values_are_text",
        "test_no_page_writes_anything",
    ],
    "tests/engine/ui/test_jobs.py": [
        "test_an_action_comes_from_a_page_of_the_console_alone",
        "test_without_the_option_no_page_changes_anything",
        "test_hostile_names_of_tables_topics_and_reasons_are_text",
    ],
    "tests/engine/follow/test_server.py": [
        "test_no_start_of_a_client_costs_a_place",
        "test_a_hundred_good_clients_do_not_notice_two_thousand_hostile_ones",
    ],
    "tests/engine/deploy/config/test_layers.py": [
        "test_a_tag_makes_nothing",
        "test_a_small_file_of_many_values_or_levels_is_refused_by_name",
    ],
    "tests/logstore/format/test_avro_payloads.py": ["test_a_record_of_few_bytes_does_not_become_any_number_of_items"],
    "tests/filestore/format/test_compression.py": ["test_a_small_block_does_not_unpack_to_all_memory"],
    "tests/engine/kafka/test_dead_letters.py": ["test_a_letter_is_cut_only_where_the_topic_does_not_take_it_whole"],
    "tests/engine/broker/test_class_archive.py": ["test_an_archive_that_another_user_may_have_made_is_not_mapped"],
    "tests/engine/broker/test_broker.py": ["test_no_other_user_of_the_machine_reads_its_records"],
    "tests/engine/broker/test_broker_login.py": [
        "test_a_table_is_written_and_read_with_what_the_start_prints_and_not_without",
        "test_an_address_that_others_reach_has_a_login_unless_one_says_no",
    ],
    "tests/engine/runtime/test_listener.py": [
        "test_a_request_that_never_ends_is_ended",
        "test_who_sends_no_request_does_not_keep_others_out",
        "test_a_client_of_the_console_that_does_not_read_is_ended",
    ],
    "tests/engine/runtime/test_scratch.py": ["test_a_directory_that_another_user_may_have_made_is_refused"],
    "tests/engine/write/test_emptying.py": ["test_a_bad_record_becomes_one_letter_however_often_its_batch_is_read"],
}
KEEPS = {
    "tests/engine/log/test_secure_log.py": [
        "test_a_role_needs_no_more_than_its_rights",
        "test_the_login_is_that_of_the_catalog_and_not_of_who_made_the_table",
    ],
    "tests/engine/kafka/test_secure_source.py": ["test_a_job_reads_as_one_user_and_logs_as_another"],
    "tests/engine/log/test_avro_log.py": ["test_the_login_of_a_catalog_is_used_and_not_stored"],
    "tests/filestore/maintenance/test_places_of_strangers.py": [
        "test_what_the_opener_allows_is_read_and_never_deleted"
    ],
    "tests/engine/test_placed_tables.py": ["test_a_table_has_a_place_of_its_own"],
    "tests/engine/cli/test_settings_of_openers.py": ["test_a_setting_works_by_each_way_and_is_needed"],
    "tests/filestore/iceberg/test_rest_catalog.py": ["test_a_login_is_that_of_pyicebergs_configuration"],
    "tests/engine/lineage/test_settings.py": [
        "test_an_address_of_the_catalogs_file_names_no_file_or_login_of_its_opener"
    ],
    "tests/filestore/layout/test_log_key.py": [
        "test_a_store_without_modes_keeps_a_key_as_any_file",
        "test_a_reader_without_the_right_to_it_has_no_key_and_reads_on",
    ],
}


@pytest.mark.parametrize(("heading", "tests"), [("Promises and their tests", BREAKS), ("What you need works", KEEPS)])
def test_each_sentence_of_the_page_has_tests(heading: str, tests: dict[str, list[str]]) -> None:
    rows = table(PAGE[heading])
    assert {unquoted(row[1]) for row in rows} == {*tests}
    assert len({row[0] for row in rows}) == len(rows)
    for file, names in tests.items():
        nodes = ast.walk(ast.parse((ROOT / file).read_text(encoding="utf-8")))
        there = {each.name for each in nodes if isinstance(each, ast.FunctionDef)}
        assert {*names} <= there, file


def test_each_role_has_a_test_that_tries_what_it_cannot() -> None:
    roles = table(PAGE["Roles"])
    assert len({role for role, *_ in roles}) == len(roles) == 9
    assert {unquoted(file) for *_, file in roles} <= {*BREAKS}
