"""What broke in the field, and which tests show that it does not here.

Users of coding agents reported these failures in public; each row says in our words what must hold, and names the tests
that show it. Where a row needs something that this version has not (forks, images), `open` says so, and
`tests` hold for the part that is there. A `*` in a test's name stands for any text.
"""

import ast
import re
from functools import cache
from pathlib import Path

import msgspec
import pytest

ROOT = Path(__file__).parents[1]


class Row(msgspec.Struct, frozen=True):
    """One row. `tests` are `file::test` below tests/."""

    id: str
    holds: str
    tests: tuple[str, ...]
    open: str = ""


ROWS = (
    # -- torn, lost or unreadable logs
    Row("B1", "A log cut at any byte of its last record shows all earlier records, and one message names the cut.",
        ("damage/test_write_ahead.py::"
         "test_a_cut_at_every_byte_of_the_last_record_keeps_all_earlier_ones_and_is_named_b1",
         "damage/test_recover.py::test_a_file_cut_anywhere_is_named_and_what_is_before_the_cut_is_saved")),
    Row("B3", "What is appended after such a cut follows the last whole record.",
        ("damage/test_write_ahead.py::"
         "test_after_a_cut_the_next_append_follows_the_last_whole_record_and_the_rest_is_gone_b3",)),
    Row("B4", "Damage in the middle is never silent: both sides can be read and saved, and nobody goes on by accident.",
        ("log/test_damage.py::test_both_sides_of_the_damage_can_be_read",
         "damage/test_recover.py::test_a_damaged_log_is_opened_before_the_damage_and_refused_beyond",
         "damage/test_recover.py::test_a_flipped_byte_in_each_kind_of_page_is_named_or_changes_nothing",
         "damage/test_recover.py::test_pages_overwritten_with_noise_cost_only_the_events_on_them")),
    Row("B5", "A write cut short at any byte and then said again leaves exactly one copy of the record.",
        ("damage/test_syscalls.py::test_a_write_cut_short_at_any_byte_and_said_again_leaves_one_copy_b5",
         "damage/test_syscalls.py::test_an_append_whose_flush_failed_is_found_by_its_id_and_not_doubled",
         "log/test_io_errors.py::test_an_append_that_fails_anywhere_stands_once_after_it_is_said_again")),
    Row("B6", "After a power cut the log opens and holds every acknowledged record.",
        ("damage/test_power_loss.py::"
         "test_after_a_power_loss_every_acknowledged_event_is_there_and_the_rest_whole_or_not_at_all_b6",
         "damage/test_power_loss.py::test_a_log_gets_its_name_when_all_of_it_is_durable")),
    Row("B8", "No cache or state file outranks the log; a kill between any two writes leaves a log that folds.",
        ("e2e/test_more_field_bugs.py::test_b8_no_file_beside_the_log_outranks_it",
         "runtime/test_checkpoint.py::test_a_fold_from_every_checkpoint_equals_the_full_fold",
         "ui/test_cli_ls.py::test_a_cache_of_another_log_under_the_same_name_is_not_believed",
         "crash/test_failpoints.py::test_a_kill_at_every_append_loses_and_repeats_nothing")),
    Row("B9", "A session can be listed and resumed within a second of its owner's death: a kernel lock says who lives.",
        ("log/test_processes.py::test_a_killed_owner_leaves_the_lock_free_at_once",
         "e2e/test_clocks.py::test_b62_who_owns_a_session_does_not_depend_on_the_clock")),
    Row("B10", "The record of a start is durable before what it starts.",
        ("e2e/test_more_field_bugs.py::test_b46_the_word_of_a_call_is_durable_with_its_name_before_its_command_begins",
         "crash/test_failpoints.py::test_a_kill_on_either_side_of_every_effect_loses_and_repeats_nothing",
         "e2e/test_fan_out.py::test_killed_ten_times_each_child_runs_once_and_every_zero_is_a_zero")),
    Row("B11", "Damage in one session stops no other one.",
        ("e2e/test_more_field_bugs.py::test_b11_a_damaged_or_foreign_session_never_stops_another",
         "log/test_damage.py::test_a_damaged_log_does_not_stop_another_from_opening",
         "ui/test_cli_ls.py::test_damaged_and_foreign_files_are_listed_and_break_nothing")),
    Row("B12", "An event of an unknown kind is kept byte for byte and shown; only going on needs a muse that knows it.",
        ("e2e/test_more_field_bugs.py::"
         "test_b12_an_event_of_a_kind_from_the_future_is_kept_and_shown_and_only_going_on_needs_a_newer_muse",
         "event/test_envelope.py::test_a_type_that_this_build_does_not_know_keeps_its_text",
         "event/test_envelope.py::test_an_older_version_is_brought_up_on_reading",
         "decide/test_due.py::test_an_event_of_an_unknown_type_blocks_going_on",
         "golden/test_golden.py::test_it_replays_to_the_bytes_of_its_day")),
    # -- two writers, locks, wrong file
    Row("B14", "A second writer is refused before it can append.",
        ("e2e/test_two_writers.py::test_a_second_resume_of_a_running_session_is_refused_and_names_the_owner",
         "log/test_processes.py::test_a_second_process_is_refused_and_told_who_owns",
         "log/test_processes.py::"
         "test_a_second_owner_beside_a_thousand_appends_is_refused_before_it_can_append")),
    Row("B15", "Whatever several processes say at once, there is one linear history.",
        ("e2e/test_two_writers.py::test_*_clients_with_*_commands_each_leave_one_history_and_the_run_finishes",
         "log/test_processes.py::test_two_submitters_beside_a_running_owner_make_one_history")),
    Row("B17", "Anyone can attach, reading and live; a take-over is explicit and fences the old owner.",
        ("e2e/test_attach.py::test_what_is_attached_sees_every_event_once_and_ends_with_the_session",
         "e2e/test_taking.py::test_a_session_is_taken_from_its_owner_and_nothing_runs_twice",
         "effect/runner/test_supervisor.py::test_an_earlier_owner_is_fenced_as_soon_as_a_later_one_speaks")),
    Row("B18", "After kill -9 the next owner opens at once; no lock file outlives its process.",
        ("e2e/test_two_writers.py::test_of_several_that_resume_a_dead_session_at_once_one_runs_it",
         "log/test_processes.py::test_a_killed_owner_leaves_the_lock_free_at_once")),
    # -- unpaired tool calls
    Row("B21", "Killed at any step of a batch, the next request answers every call exactly once.",
        ("e2e/test_field_bugs.py::test_b21_b22_b39_a_batch_killed_while_it_runs_is_answered_whole_and_once",
         "crash/test_failpoints.py::test_a_kill_at_every_append_loses_and_repeats_nothing",
         "crash/test_matrix.py::test_a_kill_of_anything_at_any_place_leaves_every_zero_a_zero",
         "crash/test_killed.py::test_a_session_of_30_steps_killed_30_times_does_each_step_once")),
    Row("B22", "The record of a call is durable before its result can be appended.",
        ("e2e/test_field_bugs.py::test_b21_b22_b39_a_batch_killed_while_it_runs_is_answered_whole_and_once",
         "crash/test_failpoints.py::test_a_kill_on_either_side_of_every_effect_loses_and_repeats_nothing")),
    Row("B23", "A retry adds no unpaired call.",
        ("e2e/test_field_bugs.py::test_b23_failing_attempts_after_a_crash_add_no_unpaired_call",)),
    Row("B24", "A machine that slept wakes to a valid conversation.",
        ("e2e/test_more_field_bugs.py::"
         "test_b24_a_machine_that_sleeps_in_the_middle_of_a_batch_wakes_to_a_valid_conversation",)),
    Row("B25", "Output is on disk while a command runs: after a restart the result is had, or said to be unknown.",
        ("crash/test_doubt.py::test_a_command_whose_host_is_killed_ends_as_it_would_have",
         "crash/test_doubt.py::test_only_where_the_runner_is_killed_too_the_model_is_told_to_look",
         "effect/runner/test_crash.py::test_the_next_owner_gets_the_result_of_a_run_without_a_crash")),
    # -- bytes that poison history
    Row("B26", "No bytes make a log unreadable or a later request invalid; cuts fall between characters.",
        ("hostile/test_output.py::test_b26_b36_no_output_poisons_a_conversation_or_fills_memory_and_all_of_it_is_kept",
         "hostile/test_model.py::test_b26_no_word_name_or_argument_of_a_model_poisons_its_conversation",
         "e2e/test_field_bugs.py::test_b26_no_output_of_a_command_poisons_the_conversation",
         "event/test_text.py::test_*")),
    Row("B30", "A request has a budget of bytes, and large images become placeholders.", (),
        "This version sends no images; what a tool result may take of a request is bounded (B36)."),
    # -- disk full, permissions, size
    Row("B31", "When the log cannot be written, no tool and no model call starts; it goes on when there is space.",
        ("e2e/test_field_bugs.py::test_b31_a_full_disk_stops_the_run_at_once_and_it_goes_on_when_there_is_space",
         "damage/test_disks.py::test_a_run_on_a_disk_that_fills_up_starts_nothing_more_says_so_and_is_resumed_b31_b32",
         "damage/test_syscalls.py::"
         "test_a_run_whose_disk_stays_broken_stops_before_the_next_command_and_is_resumed_b31_b32",
         "runtime/test_loop.py::test_without_room_nothing_more_starts_what_is_known_is_kept_and_the_session_resumes")),
    Row("B32", "A full disk is no crash: nothing is half applied, and the exit code is a documented one.",
        ("damage/test_syscalls.py::"
         "test_a_run_whose_disk_stays_broken_stops_before_the_next_command_and_is_resumed_b31_b32",
         "damage/test_disks.py::test_an_append_that_finds_the_disk_full_is_refused_and_stands_once_when_there_is_space",
         "log/test_room.py::test_a_log_that_does_not_fit_on_the_disk_is_no_damage_and_leaves_nothing",
         "e2e/test_odd_places.py::test_an_answer_that_cannot_be_written_is_said_and_is_no_success")),
    Row("B33", "Logs are 0600 and their folders 0700 under any umask.",
        ("e2e/test_odd_places.py::test_b33_everything_under_the_home_is_private_while_a_command_runs_and_after",
         "e2e/test_field_bugs.py::test_b33_logs_are_private_under_a_umask_that_takes_everything",
         "log/test_place.py::test_files_are_private_whatever_the_umask",
         "effect/runner/test_supervisor.py::test_files_are_private_whatever_the_umask")),
    Row("B34", "The log grows with what is new, not with its square, and opening a large one takes little memory.",
        ("damage/test_big.py::test_a_large_log_is_opened_verified_and_recovered_in_the_memory_of_a_small_one_b34",
         "bench/test_bench.py::test_what_a_model_call_adds_to_the_log_does_not_grow_with_the_session",
         "bench/test_bench.py::"
         "test_checkpoints_of_a_growing_log_are_as_many_as_its_doublings_and_their_sum_is_no_square",
         "log/test_processes.py::test_a_large_blob_takes_little_memory_and_little_write_ahead_log")),
    Row("B35", "A fork of a large session adds next to nothing.", (),
        "Forks come later. A session that others go on from is not removed."),
    Row("B36", "Long output is kept outside the conversation, whole; listing does not depend on how long a log is.",
        ("hostile/test_output.py::test_b36_the_model_reads_any_part_of_a_long_output",
         "hostile/test_output.py::test_a_gibibyte_of_output_is_kept_whole",
         "log/test_catalog.py::test_listing_a_log_again_costs_the_same_however_long_it_is",
         "log/test_catalog.py::test_counting_bit_by_bit_gives_what_counting_at_once_gives")),
    # -- resume that redoes or forgets work
    Row("B38", "Of calls that run side by side and end in any order, each completed one ran once over all resumes.",
        ("crash/test_killed.py::test_a_session_of_30_steps_killed_30_times_does_each_step_once",
         "runtime/test_loop.py::test_six_hundred_tool_uses_in_one_response_all_run_once",
         "decide/test_due.py::test_calls_are_numbered_in_the_order_of_the_uses_and_numbers_never_go_back",
         "e2e/test_fan_out.py::test_killed_ten_times_each_child_runs_once_and_every_zero_is_a_zero",
         "night/test_night.py::"
         "test_a_night_of_eight_agents_under_kills_quotas_and_compactions_leaves_every_zero_a_zero")),
    Row("B39", "Starts and ends are recorded for each call of a batch, and a finished call never runs again.",
        ("e2e/test_field_bugs.py::test_b21_b22_b39_a_batch_killed_while_it_runs_is_answered_whole_and_once",
         "e2e/test_approvals.py::"
         "test_an_open_request_outlives_a_kill_and_an_answer_given_meanwhile_holds_for_that_call_only",
         "effect/runner/test_supervisor.py::test_a_second_start_is_refused_whatever_became_of_the_first")),
    Row("B41", "A cancel is an event, and the next request tells the model of it.",
        ("e2e/test_field_bugs.py::test_b41_a_cancelled_call_is_told_to_the_model_and_not_done_again",
         "e2e/test_field_bugs.py::test_b41_a_cancel_that_a_crash_follows_still_holds",
         "crash/test_failpoints.py::test_a_cancel_holds_through_kills_at_every_append_that_follows")),
    Row("B42", "The next request comes from the log alone; words before an interruption are kept and marked as such.",
        ("e2e/test_field_bugs.py::test_b42_the_words_before_an_interruption_are_kept_and_told",
         "e2e/test_field_bugs.py::test_b42_the_words_of_a_cut_attempt_are_kept_as_evidence_and_asked_for_again",
         "runtime/test_rebuild.py::test_every_request_of_a_session_is_rebuilt")),
    Row("B43", "What was ended stays ended over three restarts.",
        ("e2e/test_more_field_bugs.py::"
         "test_b43_b45_what_was_cancelled_stays_so_and_what_was_open_is_settled_over_three_restarts",
         "crash/test_agent_states.py::test_b43_who_was_cancelled_does_nothing_more_over_three_restarts",
         "decide/test_agents.py::"
         "test_who_was_cancelled_hears_nobody_however_often_the_session_is_opened_again")),
    # -- subagents, background processes
    Row("B45", "After a restart everything that was open gets a verdict before anything new starts.",
        ("e2e/test_more_field_bugs.py::"
         "test_b43_b45_what_was_cancelled_stays_so_and_what_was_open_is_settled_over_three_restarts",
         "runtime/test_recovery.py::test_each_verdict_of_each_class_is_an_event_and_holds",
         "e2e/test_processes.py::"
         "test_a_background_process_outlives_its_session_is_adopted_once_by_each_owner_and_reaped",
         "crash/test_agent_states.py::"
         "test_b45_after_a_restart_every_open_child_is_accounted_for_within_a_second")),
    Row("B46", "A start is recorded with its id before what it starts can act.",
        ("e2e/test_more_field_bugs.py::"
         "test_b46_the_word_of_a_call_is_durable_with_its_name_before_its_command_begins",
         "e2e/test_fan_out.py::test_killed_ten_times_each_child_runs_once_and_every_zero_is_a_zero")),
    Row("B47", "Every process that was left running is recorded; a resume adopts or reaps it and says which.",
        ("e2e/test_processes.py::"
         "test_a_background_process_outlives_its_session_is_adopted_once_by_each_owner_and_reaped",
         "e2e/test_processes.py::test_a_session_that_nobody_could_record_names_what_it_left_when_it_is_resumed",
         "effect/runner/test_crash.py::test_a_reused_pid_is_not_taken_for_the_keeper")),
    Row("B50", "A write outside an agent's folder is refused, and the log says that it was tried.",
        ("effect/tool/test_write.py::test_nothing_is_written_outside_the_workspace",
         "effect/sandbox/test_confined.py::test_the_workspace_is_written_and_nothing_outside_it",
         "decide/test_due.py::test_nobody_is_asked_about_a_file_call_that_cannot_succeed",
         "e2e/test_worktrees.py::test_a_refused_write_is_the_result_of_the_call_in_the_log")),
    Row("B51", "Whatever ends a command, its result holds what it printed until then.",
        ("e2e/test_field_bugs.py::test_b51_a_command_that_is_ended_by_its_time_limit_keeps_what_it_wrote",
         "hostile/test_full_disk.py::test_a_command_that_prints_the_disk_full_is_ended_told_of_and_kept_as_far_as_it_came",
         "hostile/test_output.py::test_b51_what_was_printed_before_the_end_is_kept_whatever_it_is",
         "effect/runner/test_commands.py::test_a_timeout_keeps_the_output_so_far")),
    # -- compaction
    Row("B55", "Compaction only appends: killed in the middle of a summary, all earlier events are there.",
        ("e2e/test_long_sessions.py::test_three_compactions_and_a_host_killed_in_the_middle_of_a_summary",
         "crash/test_agent_states.py::"
         "test_killed_while_it_asks_for_a_summary_of_its_context_an_agent_asks_again_and_goes_on")),
    # -- secrets, paths, clocks
    Row("B58", "A secret that is on disk can be taken out, and the rest still verifies.",
        ("ui/test_redact.py::test_no_form_of_a_secret_is_left_in_any_file_and_the_log_verifies",
         "e2e/test_known_secrets.py::test_a_key_that_is_said_reaches_neither_the_log_nor_the_model")),
    Row("B59", "Masking touches the record, never the bytes that a tool is given.",
        ("e2e/test_field_bugs.py::test_b59_a_secret_is_masked_in_what_comes_back_never_in_what_a_tool_gets",)),
    Row("B61", "A session is found by its id from anywhere, and survives the renaming of its folder.",
        ("e2e/test_odd_places.py::"
         "test_b61_a_workspace_renamed_after_a_crash_is_known_there_and_the_command_taken_up",
         "e2e/test_odd_places.py::test_b61_a_workspace_renamed_between_turns_is_found_by_id_and_gone_on_with")),
    Row("B62", "A clock that jumps changes neither order nor ownership nor time-outs nor what a resume does.",
        ("e2e/test_clocks.py::"
         "test_b62_a_clock_that_jumps_under_a_running_session_and_at_its_resume_moves_no_event",
         "e2e/test_clocks.py::test_b62_a_time_out_runs_on_a_clock_that_only_goes_forward",
         "e2e/test_clocks.py::test_b62_an_approval_that_nobody_answers_ends_under_a_clock_set_back",
         "e2e/test_clocks.py::test_b62_who_owns_a_session_does_not_depend_on_the_clock",
         "e2e/test_clocks.py::test_b62_the_session_made_last_is_the_last_one_whatever_the_clock_said")),
)  # fmt: skip

REQUIRED = (
    1, 3, 4, 5, 6, 8, 9, 10, 11, 12, 14, 15, 17, 18, 21, 22, 23, 24, 25, 26, 30, 31, 32, 33, 34, 35,
    36, 38, 39, 41, 42, 43, 45, 46, 47, 50, 51, 55,
)  # fmt: skip
"""The rows on torn logs, writers, unpaired calls, bytes, disk, resume, processes and compaction."""


@cache
def names_in(file: Path) -> frozenset[str]:
    """The names of the tests that a file defines."""
    tree = ast.parse(file.read_bytes())
    found = (node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef))
    return frozenset(node.name for node in found if node.name.startswith("test_"))


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.id)
def test_every_row_names_tests_that_exist(row: Row) -> None:
    assert row.tests or row.open
    for name in row.tests:
        file, _, test = name.partition("::")
        pattern = re.compile(re.escape(test).replace(r"\*", ".*"))
        assert any(pattern.fullmatch(known) for known in names_in(ROOT / "tests" / file)), f"there is no {name}"


def test_every_row_that_is_asked_for_is_here_once() -> None:
    names = [row.id for row in ROWS]
    assert len(set(names)) == len(names)
    assert {f"B{number}" for number in REQUIRED} <= set(names)


def test_a_test_that_names_a_row_names_one_that_is_listed() -> None:
    """A row's number in a test's name stands here too, so that nobody looks for it in vain."""
    known = {row.id.lower() for row in ROWS}
    for file in sorted((ROOT / "tests").rglob("test_*.py")):
        for test in names_in(file):
            for number in re.findall(r"(?<=_)b[1-9][0-9]?(?=_|$)", test):
                assert number in known, f"{file}: {test}"
