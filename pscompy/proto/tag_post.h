/* Posting a receive to the fabric, and recalling it; tag.h describes when. */
#pragma once

#include "../core/types/connection.h"

static inline uint64_t psc_tag_bits(uint32_t context, int32_t tag)
{
    return (uint64_t)context << PSC_TAG_CONTEXT_SHIFT | (uint32_t)tag;
}

/* Returns true if the fabric could match this receive, regardless of other
 * receives. */
bool psc_tag_may(const psc_req_t *req);
/* Post the receive. Returns false if the fabric refuses it. */
bool psc_tag_post(psc_req_t *req);
/* Take the receive back from the fabric. Returns false if the fabric has
 * matched it. */
bool psc_tag_recall(psc_req_t *req);
