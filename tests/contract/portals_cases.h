/* What the files of the cases of portals share. */
#ifndef PSCOMPY_TESTS_CONTRACT_PORTALS_CASES_H
#define PSCOMPY_TESTS_CONTRACT_PORTALS_CASES_H

#include "harness.h"
#include "pscompy/plugins/portals/driver.h"
#include "pscompy/plugins/portals/portals.h"

void set_number(const char *name, int64_t number);
uint64_t counter(const ct_side_t *side, psptl_counter_t which);
/* Of both sides. */
uint64_t counted(const ct_pair_t *pair, psptl_counter_t which);
/* Connections between two interfaces, those of the first pair. */
void ends_up(ct_pair_t *pairs, int n);
void ends_down(ct_pair_t *pairs, int n);

/* ---- portals_match_cases.c ---- */
void a_cancel_is_too_late_once_it_has_matched(void);
void a_receive_finds_what_came_before_it(void);
void a_search_may_tell_of_an_overflow(void);
void a_matched_receive_ends_with_its_endpoint(void);
void overflow_buffers_are_as_many_as_messages(void);
void sources_are_told_apart(void);

#endif
