/* One-sided access to registered regions: by the fabric where it can, by
 * messages otherwise. A connection that survives the loss of a lane makes that
 * lane's puts again over another lane. The region stays open meanwhile, so such
 * a connection puts only over lanes whose late puts cannot reach the region
 * (PSC_CAP_PUT_ENDS).
 *
 * A put by messages is a rendezvous without matching: RMA_PUT is answered by
 * RTR, and the target confirms with FIN when the data is in place. A get by
 * messages asks the target for FRAGs. The target finds its region by id and
 * nonce and checks every access against its bounds. */
#pragma once

#include "protocol.h"
#include "region.h"

extern const psc_proto_t psc_rma;

typedef struct psc_rma_args {
    const uint8_t *packed;
    size_t packed_len;
    uint64_t offset;
    bool is_put;
} psc_rma_args_t;

psc_status_t psc_rma_start(psc_conn_t *conn, const psc_send_args_t *args,
                           const psc_rma_args_t *rma,
                           psc_request_t **request_p);
