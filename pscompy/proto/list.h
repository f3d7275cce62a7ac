/* The list of all protocols. */
#pragma once

#include "protocol.h"

/* In the order in which a message tries those that carry messages; NULL at the
 * end. The last one carries every message. */
extern const psc_proto_t *const psc_proto_list[];
/* the protocol of messages that are not matched */
extern const psc_proto_t *const psc_proto_unmatched;
