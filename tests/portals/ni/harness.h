/* Two processes that communicate over the software NI, and a second connection,
 * the line, over which they exchange addresses and synchronise. */
#pragma once

#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/types.h>

#include "pscompy/transport/kit/clock.h"
#include "softni/pscompy_softni/settings.h"
#include "tests/cases.h"

#define PATIENCE_NS 60000000000ll

void fail_at(const char *file, int line, const char *what, long long value)
    __attribute__((noreturn));
#define check(condition)                                                       \
    do {                                                                       \
        if (!(condition))                                                      \
            fail_at(__FILE__, __LINE__, #condition, 0);                        \
    } while (0)
#define same(value, wanted)                                                    \
    do {                                                                       \
        long long value_ = (long long)(value);                                 \
        if (value_ != (long long)(wanted))                                     \
            fail_at(__FILE__, __LINE__, #value " is not " #wanted, value_);    \
    } while (0)

typedef struct side {
    bool first; /* true for the first of the two sides */
    int line;
    pid_t other; /* pid of the other process; set on the first side only */
    ptl_handle_ni_t ni;
    ptl_ni_limits_t limits;
    ptl_handle_eq_t eq, spare; /* spare is a queue that receives no events */
    ptl_pt_index_t pt;
    ptl_process_t me, peer;
    ptl_handle_md_t md; /* covers all memory; its events go to eq */
} side_t;

typedef struct setup {
    psni_settings_t settings;
    unsigned ni_options, pt_options, md_options;
    ptl_size_t eq_size;
    bool strangers; /* the sides do not admit each other */
} setup_t;

/* Settings of the next pair; each case starts with the defaults. */
extern setup_t setup;

/* Runs each function in a process of its own; both must return. */
void pair(void (*first)(side_t *), void (*second)(side_t *));
/* Returns when both sides have called it. */
void meet(const side_t *side);
void meet_busily(const side_t *side); /* drives progress while it waits */
/* Send a value to the other side over the line, and receive one. */
void tell(const side_t *side, uint64_t value);
uint64_t told(const side_t *side);
/* Kills the other side without notice. */
void kill_other(side_t *side);

void open_side(side_t *side);
void close_side(side_t *side);
void admit(side_t *side); /* exchanges addresses and cookies */

/* Returns the next event; fails after PATIENCE_NS. */
ptl_event_t next_event(const side_t *side);
ptl_event_t expect(const side_t *side, ptl_event_kind_t type,
                   ptl_ni_fail_t fail);
/* call after meet(): no event is pending */
void expect_nothing(const side_t *side);

/* An entry that takes `bits` once, without a LINK event. */
ptl_me_t entry_for(void *start, size_t length, uint64_t bits);
ptl_handle_me_t append(const side_t *side, const ptl_me_t *me, ptl_list_t list,
                       void *user_ptr);
void put(const side_t *side, const void *start, size_t length, uint64_t bits,
         uint64_t data, ptl_ack_req_t ack);

void fill(void *buffer, size_t length, unsigned seed);
bool filled(const void *buffer, size_t length, unsigned seed);
psni_counters_t counted(const side_t *side);
