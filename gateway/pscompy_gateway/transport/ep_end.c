/* The end of an endpoint: its last packet is acknowledged, or the endpoint is
 * given up. The endpoint is freed when no caller can use it any more. */
#include "agent.h"

#include <stdlib.h>

void gw_ep_close(psc_ep_t *self)
{
    gw_ep_t *ep = (gw_ep_t *)self;

    if (ep->state == GW_EP_UP) {
        ep->state = GW_EP_CLOSING;
        gw_out_control(ep, GW_BYE | GW_ACK_NOW, NULL, 0);
    } else if (ep->state < GW_EP_CLOSING) {
        ep->state = GW_EP_ENDED;
        gw_out_abandon(ep);
    }
}

psc_status_t gw_ep_stop(psc_ep_t *self)
{
    gw_ep_t *ep = (gw_ep_t *)self;

    return psc_list_empty(&ep->out.unacked) && psc_list_empty(&ep->out.ops)
               ? PSC_OK
               : PSC_INPROGRESS;
}

/* Gives up all packets that are not acknowledged. Packets in flight may outlive
 * the endpoint; its ops (zero-copy sends) do not. */
void gw_ep_fini(psc_ep_t *self)
{
    gw_ep_t *ep = (gw_ep_t *)self;
    gw_agent_t *agent = gw_agent_of(ep);

    psc_list_for_each(op, &ep->out.ops, gw_op_t, link)
        op->comp = NULL;
    gw_out_abandon(ep);
    ep->out.n_waiting = 0;
    gw_path_settle(ep);
    gw_in_forget(ep);
    psc_list_for_each(op, &ep->out.ops, gw_op_t, link)
        psc_list_remove(&op->link);
    gw_path_leave(ep);
    gw_ep_remove(ep);
    psc_list_remove(&ep->due_link);
    psc_list_remove(&ep->link);
    ep->state = GW_EP_ENDED;
    ep->freed = true;
    psc_list_push(&agent->graveyard, &ep->link);
    if (!agent->in_progress) /* else the progress function, which is running,
                                may use the endpoint, and frees it later */
        gw_ep_free_dead(agent);
}

void gw_ep_free_dead(gw_agent_t *agent)
{
    psc_link_t *link;

    while ((link = psc_list_pop(&agent->graveyard))) {
        gw_ep_t *ep = psc_container_of(link, gw_ep_t, link);

        psc_proof_wipe(&ep->proof);
        free(ep->order.held);
        free(ep);
    }
}
