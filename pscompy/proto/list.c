#include "protocol.h"

#include "am.h"
#include "eager.h"
#include "lend.h"
#include "rma.h"
#include "rndv.h"
#include "tag.h"
#include "tuple.h"

const psc_proto_t *const psc_proto_list[] = {
    &psc_lend,  /* pages that the receiver maps */
    &psc_tag,   /* all other messages of a fabric that matches */
    &psc_tuple, /* a long message, into a receive that the peer advertises */
    &psc_eager, /* a short message, for which there is credit */
    &psc_rma,   /* no message: puts and gets by messages of its own */
    &psc_am,    /* no message: it takes those that are not matched */
    &psc_rndv,  /* everything else */
    NULL,
};

const psc_proto_t *const psc_proto_unmatched = &psc_am;
