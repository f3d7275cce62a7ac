/* Packets: their memory, and sending them. */
#ifndef GATEWAY_PACKETS_H
#define GATEWAY_PACKETS_H

#include "agent.h"

gw_packet_t *gw_packet_create(gw_agent_t *agent, gw_ep_t *ep, size_t room);
void gw_packet_drop(gw_packet_t *packet);
/* Hands it to a gateway. Returns NO_RESOURCE if that is not possible now. */
psc_status_t gw_packet_send(gw_packet_t *packet, gw_path_t *path);
/* Sends a packet that has nothing but a head, and is not acknowledged. `number`
 * is the path that it is about. */
void gw_packet_signal(gw_ep_t *ep, gw_path_t *path, gw_kind_t kind,
                      uint8_t number, uint32_t mark);
/* Releases packets whose requests have completed. */
void gw_packets_finished(gw_agent_t *agent);
void gw_packets_destroy(gw_agent_t *agent);
/* Ends an op that no packet refers to: the buffers are the caller's again. */
void gw_op_release(gw_op_t *op);

#endif
