/* The settings of PSP_IB_*, from the table that Python parsed into what the
 * interface keeps. Their ranges were checked there (config.py). */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "ib.h"
#include "pscompy/core/parts/setting.h"

#define IB_BUSY_MESSAGES 64u /* so many make a peer busy */

/* "auto" is 0; up to 5 it is the number that verbs has for it. */
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

/* A request's place is its serial number modulo the size, so that the number
 * may wrap around. */
static uint32_t ib_power_of_two(uint32_t n)
{
    uint32_t power = 1;

    while (power < n)
        power *= 2;
    return power;
}

/* Who gets a ring. */
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
        .buffer_size = (size_t)buffer_size,
        .window = ib_power_of_two(psc_setting_count(params, "RECVQ_SIZE")),
        .sendq = ib_power_of_two(psc_setting_count(params, "SENDQ_SIZE")),
        .send_buffers = psc_setting_count(params, "SEND_BUFFERS"),
        .pending = psc_setting_count(params, "PENDING_TOKENS"),
        .cache_regions = psc_setting_count(params, "MCACHE_SIZE"),
        .cache_bytes = (uint64_t)psc_setting_number(params, "MCACHE_BYTES"),
        .fallbacks = psc_setting_number(params, "RNDV_FALLBACKS") != 0,
    };
    ib_settings_rings(params, settings_p);
    if (settings_p->sendq < 16 || settings_p->window < 4 ||
        settings_p->choice.recvs < 16 || settings_p->choice.comps < 16 ||
        buffer_size < 2048 || buffer_size > 1 << 22) {
        snprintf(params->reason, PSC_REASON_MAX,
                 "a setting of PSP_IB_* is missing or too small");
        return PSC_ERR_INVALID;
    }
    if (settings_p->pending >= settings_p->window)
        settings_p->pending = settings_p->window - 1;
    return PSC_OK;
}
