/* The settings of PSP_IB_*: converts the settings that Python has parsed into
 * ib_settings_t. Python has checked the ranges (config.py). */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "ib.h"
#include "pscompy/transport/kit/settings.h"

/* a peer that has sent this many messages gets the address of a ring (ring.c)
 */
#define IB_BUSY_MESSAGES 64u
#define IB_RECVS_LEAST 16u
#define IB_SENDS_LEAST 4u
#define IB_WINDOW_LEAST 4u
/* receive buffers for control messages, which need no credit of the window */
#define IB_UNCOUNTED 8u

/* Returns the MTU in bytes that `text` names; 0 for "auto". Numbers up to 5 are
 * values of enum ibv_mtu. */
static unsigned ib_settings_mtu(const char *text)
{
    unsigned mtu = (unsigned)strtoul(text, NULL, 10);

    return mtu > 0 && mtu <= IBV_MTU_4096 ? 128u << mtu : mtu;
}

static ib_choice_t ib_settings_choice(const psc_open_params_t *params)
{
    return (ib_choice_t){
        .hca = psc_setting_text(params, "HCA"),
        .port = (int)psc_setting_number(params, "PORT"),
        .path = params->path,
        .gid_index = (int)psc_setting_number(params, "GID_INDEX"),
        .mtu = ib_settings_mtu(psc_setting_text(params, "PATH_MTU")),
        .recvs = psc_setting_count(params, "SRQ_SIZE"),
        .comps = psc_setting_count(params, "COMPQ_SIZE"),
    };
}

/* Rounds n up to a power of two. Requests and messages are stored at their
 * serial number modulo a size; with a power of two this stays right when the
 * serial number wraps around. */
static uint32_t ib_power_of_two(uint32_t n)
{
    uint32_t power = 1;

    while (power < n)
        power *= 2;
    return power;
}

/* Sets after how many messages a peer gets the address of a ring (ring.c), and
 * how many rings there may be. */
static void ib_settings_rings(const psc_open_params_t *params,
                              ib_settings_t *settings)
{
    const char *eager = psc_setting_text(params, "EAGER");

    settings->busy = IB_BUSY_MESSAGES;
    settings->rings = psc_setting_count(params, "RDMA_PEERS");
    if (strcmp(eager, "srq") == 0)
        settings->rings = 0;
    if (strcmp(eager, "rdma") == 0) {
        settings->busy = 1;
        settings->rings = UINT32_MAX;
    }
}

static uint32_t ib_settings_at_most(uint32_t n, uint64_t bound, uint32_t least)
{
    if (bound < least)
        bound = least;
    return n < bound ? n : (uint32_t)bound;
}

/* Limits the receive buffers, the send buffers and the slots of rings to about
 * `bytes` bytes each. */
static void ib_settings_bound(ib_settings_t *settings, uint64_t bytes)
{
    uint64_t most = bytes / settings->buffer_size;

    settings->choice.recvs =
        ib_settings_at_most(settings->choice.recvs, most, IB_RECVS_LEAST);
    settings->send_buffers =
        ib_settings_at_most(settings->send_buffers, most, IB_SENDS_LEAST);
    settings->ring_slots = most;
}

/* Returns the number of receive buffers that the window requires. A peer learns
 * that its message in a ring was received before the receive buffer that the
 * message consumed is posted again, so twice the window may be in use. */
static uint32_t ib_settings_needed(const ib_settings_t *settings)
{
    return settings->window * (settings->rings > 0 ? 2 : 1) + IB_UNCOUNTED;
}

void ib_settings_fit(ib_settings_t *settings, uint32_t recvs)
{
    while (settings->window > IB_WINDOW_LEAST &&
           ib_settings_needed(settings) > recvs)
        settings->window /= 2;
    if (settings->pending >= settings->window)
        settings->pending = settings->window - 1;
    settings->rings = ib_settings_at_most(
        settings->rings, settings->ring_slots / settings->window, 0);
}

psc_status_t ib_settings_read(const psc_open_params_t *params,
                              ib_settings_t *settings_p)
{
    int64_t buffer_size = psc_setting_number(params, "BUFFER_SIZE");

    *settings_p = (ib_settings_t){
        .choice = ib_settings_choice(params),
        .path = {.timeout = psc_setting_count(params, "TIMEOUT"),
                 .retry_count = psc_setting_count(params, "RETRY_COUNT"),
                 .service_level = psc_setting_count(params, "SERVICE_LEVEL")},
        .connect_ns = psc_setting_number(params, "CONNECT_TIMEOUT"),
        .keepalive_ns = psc_setting_number(params, "KEEPALIVE"),
        /* the tails of a ring's slots are aligned */
        .buffer_size = (size_t)buffer_size & ~(size_t)7,
        .window = ib_power_of_two(psc_setting_count(params, "RECVQ_SIZE")),
        .sendq = ib_power_of_two(psc_setting_count(params, "SENDQ_SIZE")),
        .send_buffers = psc_setting_count(params, "SEND_BUFFERS"),
        .pending = psc_setting_count(params, "PENDING_TOKENS"),
        .cache_regions = psc_setting_count(params, "MCACHE_SIZE"),
        .cache_bytes = (uint64_t)psc_setting_number(params, "MCACHE_BYTES"),
        .fallbacks = psc_setting_number(params, "RNDV_FALLBACKS") != 0,
    };
    ib_settings_rings(params, settings_p);
    if (settings_p->sendq < 16 || settings_p->window < IB_WINDOW_LEAST ||
        settings_p->choice.recvs < IB_RECVS_LEAST ||
        settings_p->choice.comps < 16 || buffer_size < 2048 ||
        buffer_size > 1 << 22) {
        snprintf(params->reason, PSC_REASON_MAX,
                 "a setting of PSP_IB_* is missing or too small");
        return PSC_ERR_INVALID;
    }
    ib_settings_bound(settings_p,
                      (uint64_t)psc_setting_number(params, "BUFFER_BYTES"));
    return PSC_OK;
}
