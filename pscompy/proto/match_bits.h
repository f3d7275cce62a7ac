/* The match bits of a message: context and tag. */
#pragma once

#include "../core/types/connection.h"

static inline uint64_t psc_match_bits(uint32_t context, int32_t tag)
{
    return (uint64_t)context << PSC_TAG_CONTEXT_SHIFT | (uint32_t)tag;
}
