/* Collectives among workers of one process: what the cases of collectives.c and
 * collective_ends.c share. */
#pragma once

#include "harness.h"
#include "pscompy/coll/coll.h"

enum { RANKS = 5, MOST = 9000 };

/* The function x -> a x + b. Composition does not commute. */
typedef struct affine {
    uint64_t a, b;
} affine_t;

typedef struct rank {
    side_t side;
    psc_group_t *group;
    psc_conn_t *conns[RANKS]; /* to the other ranks */
    psc_request_t *request;
    affine_t send[RANKS * MOST], recv[RANKS * MOST];
} rank_t;

typedef struct order {
    psc_coll_t coll;
    const char *algorithm;
    uint64_t n;
    int root;
    bool composes; /* by the function of the program */
} order_t;

extern rank_t ranks[RANKS];
extern bool checks; /* psc_group_args_t.check of the next groups */

/* Order number i of all; false: there are no more. */
bool order_make(unsigned i, order_t *order);
bool reduces(psc_coll_t coll);
void ranks_open(void);
void ranks_close(void);
/* Returns false if there is no such algorithm of the collective. */
bool rank_start(rank_t *rank, int number, const order_t *order);
void rank_check(const rank_t *rank, int number, const order_t *order);
/* All ranks do it, and their results are checked. */
void all_do(const order_t *order);
