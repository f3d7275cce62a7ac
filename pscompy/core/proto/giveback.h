/* Giving back: a receive has matched, and its consumer does not want to know.
 *
 * Its message takes its old place among the unexpected ones again, by the
 * order in which it arrived, as a copy that owes nothing to the buffer or to
 * the lane. So no message is lost, and none overtakes it.
 *
 * A message that is still on its way goes on into the buffer of its receive: a
 * fabric may be writing there. Meanwhile its record stands in the queue as one
 * that is arriving; whoever receives it waits for the rest. When the receive
 * ends, the bytes are copied to the record, and the buffer is its owner's. The
 * record belongs to the receive until then.
 *
 * What a receive had no room for is lost already: its message comes back
 * truncated. */
#ifndef PSCOMPY_PROTO_GIVEBACK_H
#define PSCOMPY_PROTO_GIVEBACK_H

#include "match.h"

/* A receive that has not ended. OK: it is done, with CANCELLED; INPROGRESS: it
 * will be; INVALID: it has ended, or cannot. */
psc_status_t psc_giveback_request(psc_req_t *req);
/* The message of a receive that has ended, from the memory that it is in. */
psc_status_t psc_giveback_message(psc_worker_t *worker, uint32_t context,
                                  const psc_result_t *result,
                                  const psc_iov_t *iov, size_t n_iov);
/* Messages that are still on their way will not come. */
void psc_giveback_conn_ended(psc_conn_t *conn);

#endif
