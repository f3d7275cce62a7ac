/* Settings and counters of an NI (network interface). The settings are for
 * tests: in an NI of a program all but spin_us (library.c) are 0. */
#pragma once

#include <stdbool.h>

#include "api.h"

/* Settings of an NI. Rates of faults are per million. */
typedef struct psni_settings {
    /* Key shared by all NIs of a job; replaces the cookies if `has_key`. */
    bool has_key;
    uint8_t key[SOFTNI_COOKIE_BYTES];
    /* microseconds for which a call that waits for events polls before it
     * sleeps */
    unsigned spin_us;
    /* number of unanswered resends after which a peer counts as lost; 0: 100 */
    unsigned dead_after;

    /* Upper bounds of limits that PtlNIInit and PtlEQAlloc grant; 0 if
     * unbounded. */
    uint64_t max_message;
    uint64_t max_events;
    unsigned max_headers;

    /* Faults that the user of the NI sees. */
    /* rate of puts that are dropped, and whose ACK reports the failure */
    unsigned fail_acks;
    /* rate of puts whose event is posted after the next event, only for entries
     * with PTL_ME_USE_ONCE */
    unsigned reorder_events;
    /* rate of puts that disable their portal table entry, if it has flow
     * control */
    unsigned disable_tables;
    bool unlink_used; /* PtlMEUnlink returns PTL_OK for an entry that a message
                         has used up, although its events are still queued */

    /* Faults of the wire, which the NI repairs: rates of datagrams that are
     * dropped, sent twice, sent after the next one, or sent delay_us late. */
    unsigned drop, duplicate, reorder;
    unsigned delay, delay_us;
    uint64_t seed; /* seed of the random numbers that decide on faults */
} psni_settings_t;

typedef struct psni_counters {
    uint64_t frames_sent, frames_received;
    /* frames resent because no acknowledgement arrived */
    uint64_t frames_resent;
    /* frames ignored as malformed, foreign, or duplicate */
    uint64_t frames_ignored;
    /* number of times that the faults fail_acks, reorder_events and
     * disable_tables were applied */
    uint64_t acks_failed, events_reordered, tables_disabled;
    /* calls of PtlMEUnlink whose result the fault `unlink_used` has changed */
    uint64_t used_unlinked;
    uint64_t dropped, duplicated, reordered, delayed;
    /* bytes copied from frames into the memory of list entries */
    uint64_t bytes_copied;
    uint64_t peers_lost;
} psni_counters_t;

/* Replaces the settings of all NIs that are opened from now on. Returns
 * PTL_ARG_INVALID if a rate is above a million. */
int psni_configure(const psni_settings_t *settings);

int psni_counters(ptl_handle_ni_t ni_handle, psni_counters_t *counters);
