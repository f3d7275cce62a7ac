/* The contract's test harness: sides (opened interfaces), ends (endpoints)
 * and messages that check themselves. See driver.c for how to use it. */
#ifndef PSCOMPY_TESTS_CONTRACT_HARNESS_H
#define PSCOMPY_TESTS_CONTRACT_HARNESS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "pscompy/transport/kit/clock.h"
#include "pscompy/transport/transport.h"

#define CT_SKIP 77           /* exit code of a case that cannot run here */
#define CT_PATIENCE_S 60     /* nothing here takes longer than that */
#define CT_AM_ID 7
#define CT_HELD_MAX 4096
#define CT_UNEXPECTED_MAX 256 /* the bits of so many are remembered */
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
    int holding; /* it has said that it holds what was sent */
} ct_side_t;

/* Set by main before any case runs. */
extern const psc_transport_ops_t *ct_ops;
extern const psc_setting_t *ct_settings;
extern uint32_t ct_n_settings;

/* Change a setting for the sides that are opened from now on. */
void ct_set(const char *name, int64_t number, const char *text);
void ct_side_open(ct_side_t *side);
/* It must not open, for a reason that has this word in it. */
void ct_side_refused(const char *word);
void ct_side_close(ct_side_t *side);
bool ct_side_can(const ct_side_t *side, uint64_t caps);
unsigned ct_side_progress(ct_side_t *side);

/* ---- ends ---- */

/* Where an end lets payloads go that come after their header. */
typedef enum ct_landing {
    CT_WHOLE,    /* one piece of the right length */
    CT_SCATTER,  /* many small pieces, then a large one */
    CT_HALF,     /* room for half, the rest is discarded */
    CT_NOWHERE,  /* no room at all */
    CT_TAKEN     /* whole; a case may take the memory back: ct_end_take */
} ct_landing_t;

/* Every message's header. */
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
    psc_status_t status;          /* with failed */
    char reason[PSC_REASON_MAX];  /* with failed */
    uint64_t sent;                /* messages, also the next one's number */
    uint64_t received;            /* messages, in order, contents checked */
    uint64_t begun;               /* of those, how many came by am_begin */
    ct_landing_t landing;
    bool hold;                    /* keep descriptors as long as allowed */
    psc_desc_t *held[CT_HELD_MAX];
    size_t n_held;
    void (*on_message)(ct_end_t *end); /* after it was counted; or NULL */
    void *on_message_arg;
    uint64_t unexpected;          /* messages without receive: CAP_TAG */
    uint64_t unexpected_bits[CT_UNEXPECTED_MAX];
    size_t missed_len;            /* of the last one that was not there */
    uint32_t missed_number;
    bool in_body;                 /* between am_begin and am_end */
    ct_header_t body;
    char *body_buffer;
    size_t body_room;
    psc_iov_t body_iov[8];
    bool body_taken;
};

void ct_end_create(ct_end_t *end, ct_side_t *side);
/* Close, wait until stopped (both sides progress; peer may be NULL), free. */
void ct_end_destroy(ct_end_t *end, ct_side_t *peer);
/* Free without a wait, as the core may after a bounded number of stops. */
void ct_end_abandon(ct_end_t *end);
void ct_end_release_held(ct_end_t *end);
/* The payload that is arriving has no place any more. False: none is. */
bool ct_end_take(ct_end_t *end);
psc_status_t ct_end_connect(ct_end_t *end, psc_role_t role,
                            const uint8_t token[PSC_TOKEN_SIZE],
                            const uint8_t *address, size_t address_len);

/* ---- pairs ---- */

/* Two connected ends; on a transport that reaches only itself both are of one
 * side, and b == &side_a. */
typedef struct ct_pair {
    ct_side_t side_a, side_b;
    ct_side_t *a, *b;
    ct_end_t x, y; /* x belongs to a, y to b */
} ct_pair_t;

extern const uint8_t ct_token[PSC_TOKEN_SIZE];

void ct_pair_open(ct_pair_t *pair);    /* sides and ends, not connected */
void ct_pair_start(ct_pair_t *pair);   /* x connects, y accepts */
void ct_pair_await(ct_pair_t *pair);   /* until both are up */
void ct_pair_connect(ct_pair_t *pair); /* both of the above */
void ct_pair_up(ct_pair_t *pair);      /* opened and connected */
void ct_pair_down(ct_pair_t *pair);    /* everything closed and freed */
unsigned ct_pair_progress(ct_pair_t *pair);

/* Progress until condition; fails after CT_PATIENCE_S. */
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

/* A message on its way out: its buffer and its completion. */
typedef struct ct_send {
    psc_comp_t comp;
    bool done;
    psc_status_t status;
    char *buffer;
} ct_send_t;

void ct_pattern_fill(void *buffer, size_t len, uint64_t seed);
bool ct_pattern_check(const void *buffer, size_t len, uint64_t seed);

/* A completion for a call of one's own. */
void ct_send_make(ct_send_t *send);
/* Try once to send len patterned bytes in `pieces` pieces. */
psc_status_t ct_send_try(ct_end_t *end, ct_kind_t kind, size_t len,
                         size_t pieces, ct_send_t *send);
/* Send it, progressing both sides while there is no room. */
void ct_send(ct_pair_t *pair, ct_end_t *end, ct_kind_t kind, size_t len,
             size_t pieces, ct_send_t *send);
/* The same, and wait until the other end has it and the send is done. */
void ct_exchange(ct_pair_t *pair, ct_end_t *from, ct_end_t *to, ct_kind_t kind,
                 size_t len, size_t pieces);
void ct_send_finish(ct_pair_t *pair, ct_send_t *send);
/* The longest payload of one message of this kind. */
size_t ct_longest(const ct_side_t *side, ct_kind_t kind);

/* ---- cases ---- */

typedef struct ct_case {
    const char *name;
    void (*run)(void);
    uint64_t caps;    /* needed, or skipped */
    bool two_sides;   /* needs more than its own process's one interface */
} ct_case_t;

/* Ends with a case without name. */
extern const ct_case_t ct_connect_cases[], ct_message_cases[],
    ct_memory_cases[], ct_event_cases[], ct_fault_cases[], ct_mapping_cases[],
    ct_tag_cases[];
/* A transport's own, from tests/contract/<transport>_*cases.c if there are. */
extern const ct_case_t ct_own_cases[] __attribute__((weak));
/* Called before a case, where a transport has settings that are not its own. */
void ct_own_prepare(void) __attribute__((weak));

#endif
