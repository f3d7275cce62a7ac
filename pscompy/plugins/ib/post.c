/* Posts requests to the two queues of an endpoint, and sends control messages.
 * While a queue has no room the endpoint is starving: its next completion must
 * wake us. */
#include <errno.h>
#include <string.h>

#include "ib.h"

psc_status_t ib_ep_starve(ib_ep_t *ep)
{
    if (!ep->starving) {
        ep->starving = true;
        ib_ep_iface(ep)->n_starving++;
    }
    return PSC_ERR_NO_RESOURCE;
}

void ib_ep_feed(ib_ep_t *ep)
{
    if (ep->starving) {
        ep->starving = false;
        ib_ep_iface(ep)->n_starving--;
    }
}

psc_status_t ib_ep_post(ib_ep_t *ep, ib_queue_t *queue, const ib_post_t *post)
{
    if (ib_queue_post(queue, post))
        return PSC_OK;
    if (errno == ENOMEM)
        return ib_ep_starve(ep);
    psc_kit_ep_fail(&ep->kit, PSC_ERR_TRANSPORT, "posting a %s: %s",
                    queue == &ep->bulk ? "put or get" : "send",
                    strerror(errno));
    return PSC_ERR_TRANSPORT;
}

psc_status_t ib_control_send(psc_kit_ep_t *kit, uint8_t kind, const void *body,
                             size_t len)
{
    ib_ep_t *ep = ib_ep(&kit->super);
    psc_head_t head = psc_head_make(kit, kind, 0, 0);
    ib_post_t post = {
        .opcode = IBV_WR_SEND,
        .pieces = {ib_piece(&head, sizeof(head)), ib_piece(body, len)},
        .n_pieces = 2,
        .copy = true,
        .signal = true,
        .job = {.buffer = IB_NO_BUFFER},
    };

    if (ib_queue_room(&ep->messages) <= 1)
        return ib_ep_starve(ep);
    return ib_ep_post(ep, &ep->messages, &post);
}
