/* Leaving a receive to the fabric, and taking it back; tag.h says when. */
#ifndef PSCOMPY_PROTO_TAG_POST_H
#define PSCOMPY_PROTO_TAG_POST_H

#include "../types/conn.h"

static inline uint64_t psc_tag_bits(uint32_t context, int32_t tag)
{
    return (uint64_t)context << PSC_TAG_CONTEXT_SHIFT | (uint32_t)tag;
}

/* Could the fabric match this receive, if no other receive is in its way? */
bool psc_tag_may(const psc_req_t *req);
/* Post it. Returns false if the fabric does not take it. */
bool psc_tag_post(psc_req_t *req);
/* Take it back from the fabric. Returns false if it has matched. */
bool psc_tag_recall(psc_req_t *req);

#endif
