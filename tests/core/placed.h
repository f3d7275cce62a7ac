/* The cases of placed.c and hostile_placed.c share these. */
#pragma once

#include "pscompy/proto/tuple.h"
#include "tuples.h"

/* Returns true if b tells a of its receives, and a puts messages into them. */
static inline bool places(const pair_t *pair)
{
    return pair->b.conn->tuple_am != NULL;
}

/* A receive of b that a has been told of, if it is told of receives. */
static inline psc_request_t *expect_told(pair_t *pair, void *in, size_t room,
                                         int32_t tag)
{
    psc_request_t *recv = expect(pair, in, room, tag);

    settle(pair);
    return recv;
}

/* The connection has failed: the receive and the send, if there is one, end,
 * and no byte is written into memory that the program has back. */
static inline void expect_ends(pair_t *pair, psc_request_t *recv,
                               psc_request_t *send, char *in, char *out,
                               size_t len)
{
    until(pair, done(recv) && (!send || done(send)));
    check(recv->result.status < 0 || filled(in, len, 8));
    memset(in, 1, len);
    memset(out, 2, len);
    settle(pair);
    for (size_t i = 0; i < len; i++)
        check(in[i] == 1);
    api->request_free(recv);
    if (send)
        api->request_free(send);
}
