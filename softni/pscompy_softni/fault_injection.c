/* Faults for tests: names and ranges of all faults, and the faults of the wire:
 * datagrams are dropped, sent twice, overtaken by the next one, or sent
 * late. */
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include "nic.h"
#include "pscompy/transport/kit/restart.h"

#define NEXT_NS 1000000ll

/* ---- settings by name ---- */

static const struct {
    const char *name;
    size_t at, size;
    uint64_t max;
} faults[] = {
#define FAULT(field, max)                                                      \
    {#field, offsetof(psni_settings_t, field),                                 \
     sizeof(((psni_settings_t *)0)->field), max}
    FAULT(fail_acks, PSNI_MILLION),      FAULT(reorder_events, PSNI_MILLION),
    FAULT(disable_tables, PSNI_MILLION), FAULT(unlink_used, 1),
    FAULT(drop, PSNI_MILLION),           FAULT(duplicate, PSNI_MILLION),
    FAULT(reorder, PSNI_MILLION),        FAULT(delay, PSNI_MILLION),
    FAULT(delay_us, PSNI_MILLION),       FAULT(seed, UINT64_MAX),
    FAULT(max_message, UINT64_MAX),      FAULT(max_events, UINT64_MAX),
#undef FAULT
};

#define N_FAULTS (sizeof(faults) / sizeof(faults[0]))

/* Sets a field by name: copies the low bytes of the value, which a
 * little-endian machine stores first. */
int psni_settings_set(psni_settings_t *settings, const char *name,
                      uint64_t value)
{
    for (size_t i = 0; i < N_FAULTS; i++) {
        if (strcmp(faults[i].name, name) != 0)
            continue;
        if (value > faults[i].max)
            return PTL_ARG_INVALID;
        memcpy((char *)settings + faults[i].at, &value, faults[i].size);
        return PTL_OK;
    }
    return PTL_ARG_INVALID;
}

bool psni_settings_sound(const psni_settings_t *settings)
{
    for (size_t i = 0; i < N_FAULTS; i++) {
        uint64_t value = 0;

        memcpy(&value, (const char *)settings + faults[i].at, faults[i].size);
        if (value > faults[i].max)
            return false;
    }
    return true;
}

/* ---- the wire ---- */

bool psni_dice(psni_ni_t *ni, unsigned per_million)
{
    if (per_million == 0)
        return false;
    /* xorshift generator: Marsaglia, "Xorshift RNGs" (2003) */
    ni->dice ^= ni->dice << 13;
    ni->dice ^= ni->dice >> 7;
    ni->dice ^= ni->dice << 17;
    return ni->dice % PSNI_MILLION < per_million;
}

bool psni_faults_used(const psni_settings_t *settings)
{
    return settings->drop + settings->duplicate + settings->reorder +
               settings->delay >
           0;
}

static bool psni_faults_out(psni_ni_t *ni, const struct sockaddr_in *to,
                            struct iovec *iov, int n_iov)
{
    struct msghdr message = {.msg_name = (void *)to,
                             .msg_namelen = sizeof(*to),
                             .msg_iov = iov,
                             .msg_iovlen = (size_t)n_iov};

    ni->counters.frames_sent++;
    return PSC_RESTART(sendmsg(ni->socket, &message, MSG_NOSIGNAL)) >= 0;
}

static void psni_held_out(psni_ni_t *ni, psni_held_t *held)
{
    struct iovec iov = {.iov_base = held->bytes, .iov_len = held->length};

    psni_faults_out(ni, &held->to, &iov, 1);
    psc_list_remove(&held->link);
    free(held);
}

static void psni_faults_hold(psni_ni_t *ni, const struct sockaddr_in *to,
                             const psni_packet_t *packet, bool next,
                             int64_t until)
{
    psni_held_t *held;
    size_t length = 0;

    for (int i = 0; i < packet->n_iov; i++)
        length += packet->iov[i].iov_len;
    held = malloc(sizeof(*held) + length);
    if (held == NULL)
        return; /* without memory the datagram is dropped instead of delayed */
    *held = (psni_held_t){
        .to = *to, .until = until, .next = next, .length = length};
    length = 0;
    for (int i = 0; i < packet->n_iov; i++) {
        memcpy(held->bytes + length, packet->iov[i].iov_base,
               packet->iov[i].iov_len);
        length += packet->iov[i].iov_len;
    }
    psc_list_push(&ni->held, &held->link);
    psni_timer(ni, until);
}

bool psni_faults_send(psni_ni_t *ni, const struct sockaddr_in *to,
                      psni_packet_t *packet)
{
    const psni_settings_t *settings = &ni->settings;
    int64_t now = psc_clock_now();
    bool sent;

    if (psni_dice(ni, settings->drop)) {
        ni->counters.dropped++;
        return true;
    }
    if (psni_dice(ni, settings->delay)) {
        ni->counters.delayed++;
        psni_faults_hold(ni, to, packet, false,
                         now + (int64_t)settings->delay_us * 1000);
        return true;
    }
    if (psni_dice(ni, settings->reorder)) {
        ni->counters.reordered++;
        psni_faults_hold(ni, to, packet, true, now + NEXT_NS);
        return true;
    }
    sent = psni_faults_out(ni, to, packet->iov, packet->n_iov);
    if (sent && psni_dice(ni, settings->duplicate)) {
        ni->counters.duplicated++;
        psni_faults_out(ni, to, packet->iov, packet->n_iov);
    }
    psc_list_for_each(held, &ni->held, psni_held_t, link) {
        if (held->next)
            psni_held_out(ni, held);
    }
    return sent;
}

void psni_faults_tick(psni_ni_t *ni, int64_t now)
{
    psc_list_for_each(held, &ni->held, psni_held_t, link) {
        if (held->until <= now)
            psni_held_out(ni, held);
        else
            psni_timer(ni, held->until);
    }
}

void psni_faults_close(psni_ni_t *ni)
{
    psc_list_for_each(held, &ni->held, psni_held_t, link)
        psni_held_out(ni, held);
}
