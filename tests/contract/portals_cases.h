/* Declarations that the cases of portals share. */
#pragma once

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
