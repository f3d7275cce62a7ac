/* Declarations that the cases of portals share. */
#ifndef PSCOMPY_TESTS_CONTRACT_PORTALS_CASES_H
#define PSCOMPY_TESTS_CONTRACT_PORTALS_CASES_H

#include "harness.h"
#include "pscompy/plugins/portals/psptl/driver.h"
#include "pscompy/plugins/portals/portals.h"

#define MILLION 1000000

/* Finds a function of the software NI. */
void ni_symbol(const char *name, void *function_p);
/* Sets a fault of the software NI for the sides that are opened later. */
void fault(const char *name, uint64_t value);
/* Gives a side a provider of its own, whose functions a case may replace;
 * real_ni is the original provider. */
psptl_provider_t *ni_wrap(const ct_side_t *side);
extern const psptl_provider_t *real_ni;

void set_number(const char *name, int64_t number);
uint64_t counter(const ct_side_t *side, psptl_counter_t which);
/* The sum over both sides. */
uint64_t counted(const ct_pair_t *pair, psptl_counter_t which);
void print_counters(const ct_pair_t *pair);
/* Sends n messages in both directions; contents and order are checked. */
void traffic(ct_pair_t *pair, uint64_t n);
/* Connect further pairs of ends between the two interfaces of the first
 * pair. */
void ends_up(ct_pair_t *pairs, int n);
void ends_down(ct_pair_t *pairs, int n);

/* ---- portals_match_cases.c ---- */

typedef struct landed {
    psc_tag_recv_t recv;
    char buffer[100];
    bool done;
    size_t len;
} landed_t;

/* A receive of y from any tag of context 0. */
void landed_post(ct_pair_t *pair, landed_t *landed);
void landed_post_room(ct_pair_t *pair, landed_t *landed, size_t room);
/* Sends a message from x. The target's interface acknowledges it, but its owner
 * has not polled yet. */
void landed_send(ct_pair_t *pair, size_t len);

void a_cancel_is_too_late_once_it_has_matched(void);
void a_receive_finds_what_came_before_it(void);
void a_search_may_tell_of_an_overflow(void);
void an_overflow_may_have_lost_its_length(void);
void a_matched_receive_ends_with_its_endpoint(void);
void overflow_buffers_are_as_many_as_messages(void);
void sources_are_told_apart(void);

/* ---- portals_flow_cases.c ---- */

void an_entry_that_matches_closes_and_opens(void);
void messages_that_were_dropped_find_their_receives(void);
void both_at_once_and_the_wire_too(void);
void receives_go_back_after_the_fence(void);
void too_few_overflow_buffers_lose_nothing(void);
void what_took_the_receive_of_a_late_one_gives_it_back(void);
void what_is_put_from_where_it_is_gives_its_receive_back(void);
void a_late_one_whose_follower_was_cut_is_an_error(void);

/* ---- portals_bulk_cases.c ---- */

void fragment_size_cuts_a_put(void);
void rendezvous_requests_are_bounded(void);
void fostering_looks_more_often(void);
void dropped_fragments_are_sent_again(void);

/* ---- portals_revoke_cases.c ---- */

void a_put_that_has_stopped_is_awaited(void);
void an_entry_that_was_closed_in_use_is_taken_back(void);

/* ---- portals_trouble_cases.c ---- */

void lost_events_are_an_error(void);
void unknown_events_are_an_error(void);
void puts_that_are_refused_are_an_error(void);
void dropped_messages_are_sent_again(void);
void disabled_tables_are_enabled_again(void);
void trouble_on_the_wire_is_mended_below(void);
void attempts_are_limited(void);

/* ---- portals_closing_cases.c ---- */

void a_cancel_does_not_believe_the_interface(void);
void ranks_open_and_close(void);
void ranks_open_and_close_as_the_reference_library_does(void);
void ranks_open_and_close_with_late_events(void);

/* ---- portals_fence_cases.c ---- */

void a_fence_is_asked_until_it_is_answered(void);
void a_channel_that_parts_sends_no_fence(void);
void fences_are_numbered_around(void);

#endif
