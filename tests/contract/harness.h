/* The contract's test harness: sides (opened interfaces), ends (endpoints)
 * and messages that check themselves. See driver.c for how to use it. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "pscompy/transport/kit/clock.h"
#include "pscompy/transport/transport.h"
#include "tests/cases.h"

#define CT_SKIP 77           /* exit code of a case that cannot run here */
#define CT_PATIENCE_S 60     /* time limit of every wait */
#define CT_AM_ID 7
#define CT_HELD_MAX 4096
/* number of unexpected messages whose bits are kept */
#define CT_UNEXPECTED_MAX 256
#define CT_SECOND 1000000000ll

/* ---- judging ---- */

void ct_fail(const char *file, int line, const char *condition,
             const char *format, ...)
    __attribute__((noreturn, format(printf, 4, 5)));
void ct_skip(const char *format, ...)
    __attribute__((noreturn, format(printf, 1, 2)));

#define ct_check(condition, ...)                                               \
    do {                                                                       \
        if (!(condition))                                                      \
            ct_fail(__FILE__, __LINE__, #condition, __VA_ARGS__);              \
    } while (0)

/* ---- sides ---- */

typedef struct ct_side {
    psc_iface_t *iface;
    psc_iface_attr_t attr;
    const psc_transport_ops_t *ops;
    int holding; /* the last value that the upcall `holding` reported */
} ct_side_t;

/* Set by main before any case runs. */
extern const psc_transport_ops_t *ct_ops;
extern const psc_setting_t *ct_settings;
extern uint32_t ct_n_settings;

extern const psc_upcalls_t ct_upcalls; /* of all sides */

/* Change a setting for the sides that are opened from now on. */
void ct_set(const char *name, int64_t number, const char *text);
void ct_side_open(ct_side_t *side);
/* Checks that a side does not open, and that the reason contains this word. */
void ct_side_refused(const char *word);
void ct_side_close(ct_side_t *side);
bool ct_side_can(const ct_side_t *side, uint64_t caps);
unsigned ct_side_progress(ct_side_t *side);

/* ---- ends ---- */

/* Destination of payloads that arrive after their header. */
typedef enum ct_landing {
    CT_WHOLE,    /* one piece of the right length */
    CT_SCATTER,  /* many small pieces, then a large one */
    CT_HALF,     /* room for half, the rest is discarded */
    CT_NOWHERE,  /* no piece at all */
    CT_TAKEN     /* whole; a case may withdraw it with ct_end_take */
} ct_landing_t;

/* Header of every message. */
typedef struct ct_header {
    uint64_t seq;
    uint64_t len;
    uint64_t seed;
} ct_header_t;

typedef struct ct_end ct_end_t;
struct ct_end {
    ct_side_t *side;
    psc_ep_t *ep;
    bool up, failed;
    psc_status_t status;          /* valid if failed */
    char reason[PSC_REASON_MAX];  /* valid if failed */
    /* number of messages sent, and number of the next one */
    uint64_t sent;
    /* number of messages received in order with the right contents */
    uint64_t received;
    uint64_t begun; /* number of these that arrived by am_begin */
    ct_landing_t landing;
    bool hold; /* keep descriptors as long as allowed */
    psc_desc_t *held[CT_HELD_MAX];
    size_t n_held;
    /* called after the message was counted, or NULL */
    void (*on_message)(ct_end_t *end);
    void *on_message_arg;
    /* messages without a posted receive: CAP_TAG */
    uint64_t unexpected;
    uint64_t unexpected_bits[CT_UNEXPECTED_MAX];
    /* length of the last message that tag_missed reported */
    size_t missed_len;
    uint32_t missed_number;
    bool in_body; /* between am_begin and am_end */
    ct_header_t body;
    char *body_buffer;
    size_t body_room;
    psc_iov_t body_iov[8];
    bool body_taken;
};

void ct_end_create(ct_end_t *end, ct_side_t *side);
/* Close, wait until stopped (both sides progress; peer may be NULL), free. */
void ct_end_destroy(ct_end_t *end, ct_side_t *peer);
/* Frees without waiting, as the core may after a bounded number of stops. */
void ct_end_abandon(ct_end_t *end);
void ct_end_release_held(ct_end_t *end);
/* Withdraws the memory of the payload in arrival. Returns false if there is no
 * such payload. */
bool ct_end_take(ct_end_t *end);
psc_status_t ct_end_connect(ct_end_t *end, psc_role_t role,
                            const uint8_t token[PSC_TOKEN_SIZE],
                            const uint8_t *address, size_t address_len);
/* Connects to `peer`, an end in this process. */
void ct_end_join(ct_end_t *end, const ct_end_t *peer, psc_role_t role);
/* Connects to an end of the process at the other end of `link`, a socket; that
 * process does the same, or leaves the end unconnected. */
void ct_end_join_over(ct_end_t *end, int link, psc_role_t role);
void ct_end_ignore_over(const ct_end_t *end, int link);

/* ---- pairs ---- */

/* Two connected ends. On a transport that reaches only its own interface, both
 * belong to side_a and b == &side_a. */
typedef struct ct_pair {
    ct_side_t side_a, side_b;
    ct_side_t *a, *b;
    ct_end_t x, y; /* x belongs to side_a, y to side_b */
} ct_pair_t;

extern const uint8_t ct_token[PSC_TOKEN_SIZE];

void ct_pair_open(ct_pair_t *pair); /* sides and ends, not connected */
void ct_pair_start(ct_pair_t *pair); /* x connects, y accepts */
void ct_pair_await(ct_pair_t *pair); /* until both are up */
void ct_pair_connect(ct_pair_t *pair); /* start and await */
void ct_pair_up(ct_pair_t *pair); /* open and connect */
void ct_pair_down(ct_pair_t *pair); /* everything closed and freed */
unsigned ct_pair_progress(ct_pair_t *pair);

/* Calls progress until the condition holds; fails after CT_PATIENCE_S. */
#define ct_until(pair, condition)                                              \
    do {                                                                       \
        int64_t ct_deadline_ = ct_deadline();                                  \
        while (!(condition)) {                                                 \
            ct_pair_progress(pair);                                            \
            ct_check(psc_clock_now() < ct_deadline_, "not within %d s",        \
                     CT_PATIENCE_S);                                           \
        }                                                                      \
    } while (0)

int64_t ct_deadline(void);

/* ---- messages ---- */

typedef enum ct_kind { CT_BCOPY, CT_SHORT, CT_ZCOPY } ct_kind_t;

/* A message in flight: its buffer and its completion. */
typedef struct ct_send {
    psc_comp_t comp;
    bool done;
    psc_status_t status;
    char *buffer;
} ct_send_t;

void ct_pattern_fill(void *buffer, size_t len, uint64_t seed);
bool ct_pattern_check(const void *buffer, size_t len, uint64_t seed);

/* Prepares a completion for a call that the case makes itself. */
void ct_send_make(ct_send_t *send);
/* Try once to send len patterned bytes in `pieces` pieces. */
psc_status_t ct_send_try(ct_end_t *end, ct_kind_t kind, size_t len,
                         size_t pieces, ct_send_t *send);
/* Sends, calling progress on both sides while there is no room. */
void ct_send(ct_pair_t *pair, ct_end_t *end, ct_kind_t kind, size_t len,
             size_t pieces, ct_send_t *send);
/* Sends, and waits until the other end has received the message and the send
 * has completed. */
void ct_exchange(ct_pair_t *pair, ct_end_t *from, ct_end_t *to, ct_kind_t kind,
                 size_t len, size_t pieces);
void ct_send_finish(ct_pair_t *pair, ct_send_t *send);
/* The longest payload of one message of this kind. */
size_t ct_longest(const ct_side_t *side, ct_kind_t kind);

/* ---- cases ---- */

/* Called before a case of a transport that must set up more than its
 * settings. */
void ct_own_prepare(void) __attribute__((weak));
