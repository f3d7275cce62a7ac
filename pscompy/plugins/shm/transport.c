/* Shared memory between processes of one user on one node: the operations
 * table, and the life of an interface. shm.h lists the files. */
#include <ctype.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <unistd.h>

#include "pscompy/transport/kit/settings.h"
#include "memory.h"

#define SHM_BOOT_ID "/proc/sys/kernel/random/boot_id"

/* Passes over the rings between two polls of the sockets, which cost a system
 * call: while connections are being established, and otherwise. */
#define SHM_POLLS_CONNECTING 16u
#define SHM_POLLS_QUIET 1024u

psc_status_t shm_random(void *buffer, size_t len)
{
    return getrandom(buffer, len, 0) == (ssize_t)len ? PSC_OK
                                                     : PSC_ERR_TRANSPORT;
}

/* ---- settings ---- */

static shm_cma_mode_t shm_setting_cma(const psc_open_params_t *params)
{
    const char *text = psc_setting_text(params, "CMA");

    if (strcmp(text, "0") == 0)
        return SHM_CMA_OFF;
    return strcmp(text, "1") == 0 ? SHM_CMA_FORCE : SHM_CMA_AUTO;
}

static psc_status_t shm_iface_configure(shm_iface_t *iface,
                                        const psc_open_params_t *params)
{
    int64_t size = psc_setting_number(params, "BUFFER_SIZE");
    int64_t slots = psc_setting_number(params, "RECVQ_SIZE");

    if (size >= SHM_SLOT_MIN && size <= SHM_RING_MAX && slots >= 2 &&
        slots <= SHM_RING_MAX) {
        iface->geometry.slot_size = shm_ring_lines((size_t)size) * SHM_LINE;
        iface->geometry.slots = (uint32_t)slots;
    }
    if (!shm_geometry_valid(&iface->geometry)) {
        snprintf(params->reason, PSC_REASON_MAX,
                 "PSP_SHM_BUFFER_SIZE (at least %u) times PSP_SHM_RECVQ_SIZE "
                 "(at least 2) must not exceed %u bytes",
                 SHM_SLOT_MIN, SHM_RING_MAX);
        return PSC_ERR_INVALID;
    }
    iface->cma = shm_setting_cma(params);
    if (iface->cma != SHM_CMA_OFF && !shm_cma_available()) {
        snprintf(params->reason, PSC_REASON_MAX,
                 "the system refuses cross-memory attach (%s); "
                 "PSP_SHM_CMA=auto does without it",
                 strerror(errno));
        if (iface->cma == SHM_CMA_FORCE)
            return PSC_ERR_UNSUPPORTED;
        iface->cma = SHM_CMA_OFF;
    }
    return PSC_OK;
}

/* ---- identity ---- */

/* Parses 32 hexadecimal digits with dashes between them. */
static bool shm_boot_parse(const char *text, uint8_t *boot)
{
    unsigned digits = 0;

    for (; *text != '\0' && *text != '\n'; text++) {
        unsigned digit;

        if (*text == '-')
            continue;
        if (!isxdigit((unsigned char)*text) || digits == 2 * SHM_ID_SIZE)
            return false;
        digit = isdigit((unsigned char)*text)
                    ? (unsigned)(*text - '0')
                    : (unsigned)(tolower((unsigned char)*text) - 'a' + 10);
        boot[digits / 2] = (uint8_t)(boot[digits / 2] << 4 | digit);
        digits++;
    }
    return digits == 2 * SHM_ID_SIZE;
}

static psc_status_t shm_iface_identify(shm_iface_t *iface, char *reason)
{
    char text[64] = {0};
    int fd = open(SHM_BOOT_ID, O_RDONLY | O_CLOEXEC);
    ssize_t n = fd < 0 ? -1 : read(fd, text, sizeof text - 1);

    if (fd >= 0)
        close(fd);
    if (n <= 0 || !shm_boot_parse(text, iface->boot)) {
        snprintf(reason, PSC_REASON_MAX,
                 SHM_BOOT_ID " cannot be read: mount /proc");
        return PSC_ERR_UNSUPPORTED;
    }
    iface->uid = geteuid();
    if (shm_random(&iface->last_seal, sizeof iface->last_seal) != PSC_OK)
        return PSC_ERR_TRANSPORT;
    return shm_random(iface->process, sizeof iface->process);
}

/* ---- life of an interface ---- */

static void shm_close(psc_iface_t *super)
{
    shm_iface_t *iface = shm_iface(super);

    iface->closing = true;
    shm_door_close(iface);
}

static psc_status_t shm_stop(psc_iface_t *super)
{
    (void)super;
    return PSC_OK; /* ep_stop waits for each endpoint */
}

static void shm_fini(psc_iface_t *super)
{
    shm_iface_t *iface = shm_iface(super);

    shm_door_close(iface);
    psc_list_for_each(link, &iface->links, shm_link_t, listed)
        shm_link_close(link);
    shm_iface_bury(iface);
    shm_sleep_close(iface);
    shm_share_close(iface);
    shm_mem_close(iface);
    free(iface->eps);
    free(iface);
}

static psc_status_t shm_iface_start(shm_iface_t *iface,
                                    const psc_open_params_t *params)
{
    psc_status_t status = shm_iface_configure(iface, params);

    if (status == PSC_OK)
        status = shm_iface_identify(iface, params->reason);
    if (status == PSC_OK) {
        status = shm_sleep_open(iface);
        if (status != PSC_OK)
            snprintf(params->reason, PSC_REASON_MAX,
                     "no descriptors to wait with: %s", strerror(errno));
    }
    if (status == PSC_OK)
        status = shm_door_open(iface, psc_setting_text(params, "DIR"),
                               params->reason);
    return status;
}

static const psc_transport_ops_t shm_ops;

static psc_status_t shm_open(const psc_open_params_t *params,
                             psc_iface_t **iface_p)
{
    shm_iface_t *iface = calloc(1, sizeof *iface);
    psc_status_t status;

    if (iface == NULL)
        return PSC_ERR_NO_MEMORY;
    iface->super = (psc_iface_t){&shm_ops, params->up, params->user};
    iface->epoll = iface->bell.fd = iface->timer.fd = -1;
    iface->door.listener.fd = -1;
    psc_list_init(&iface->links);
    psc_list_init(&iface->free_shares);
    status = shm_iface_start(iface, params);
    if (status != PSC_OK) {
        shm_fini(&iface->super);
        return status;
    }
    *iface_p = &iface->super;
    return PSC_OK;
}

static void shm_query(psc_iface_t *super, psc_iface_attr_t *attr_p)
{
    shm_iface_t *iface = shm_iface(super);
    bool cma = iface->cma != SHM_CMA_OFF;

    *attr_p = (psc_iface_attr_t){
        .caps = PSC_CAP_AM_SHORT | PSC_CAP_EVENT | PSC_CAP_NODE | PSC_CAP_MAP,
        .max_short = SHM_PRIVATE_MAX - SHM_WORD_SIZE,
        .max_bcopy = shm_am_max(&iface->geometry),
        .max_iov = 64,
        .reg_align = 1,
        .latency_ns = 150,
        .overhead_ns = 40,
        .bandwidth = cma ? 16e9 : 30e9,
        .copy_bandwidth = 30e9,
        .reg_ns = 30,
        .poll_ns = 10,
        .paths = 1,
    };
    if (!cma)
        return;
    attr_p->caps |=
        PSC_CAP_PUT | PSC_CAP_GET | PSC_CAP_PUT_REMOTE | PSC_CAP_PUT_THEN_AM;
    attr_p->max_put = SHM_PUT_MAX;
    attr_p->max_get = SHM_GET_MAX;
}

/* ---- progress ---- */

void shm_iface_bury(shm_iface_t *iface)
{
    uint32_t kept = 0;

    if (!iface->buried || iface->in_progress)
        return;
    iface->buried = false;
    psc_list_for_each(link, &iface->links, shm_link_t, listed)
        if (link->dead)
            shm_link_free(link);
    for (uint32_t i = 0; i < iface->n_eps; i++) {
        if (iface->eps[i]->dead)
            shm_ep_free(iface->eps[i]);
        else
            iface->eps[kept++] = iface->eps[i];
    }
    iface->n_eps = kept;
}

/* Polls the sockets every `limit` passes, and when the rings hold no reason for
 * the wake-up. */
static bool shm_iface_due(shm_iface_t *iface, bool unexplained)
{
    uint32_t limit =
        iface->n_connecting > 0 ? SHM_POLLS_CONNECTING : SHM_POLLS_QUIET;

    if (!unexplained && ++iface->idle_polls < limit)
        return false;
    iface->idle_polls = 0;
    return true;
}

static void shm_iface_report(shm_iface_t *iface)
{
    for (uint32_t i = 0; i < iface->n_eps; i++)
        shm_ep_report(iface->eps[i]);
}

static unsigned shm_progress(psc_iface_t *super)
{
    shm_iface_t *iface = shm_iface(super);
    bool armed = iface->armed;
    unsigned n = 0;

    iface->in_progress = true;
    if (armed)
        shm_sleep_disarm(iface);
    /* Upcalls may add endpoints and reallocate the array. */
    for (uint32_t i = 0; i < iface->n_eps; i++)
        n += shm_am_poll(iface->eps[i]);
    for (uint32_t i = 0; iface->n_sharing > 0 && i < iface->n_eps; i++)
        n += shm_share_poll(iface->eps[i]);
    if (shm_iface_due(iface, armed && n == 0))
        n += shm_sleep_poll(iface);
    if (iface->n_failing > 0) {
        n += iface->n_failing;
        shm_iface_report(iface);
    }
    iface->in_progress = false;
    shm_iface_bury(iface);
    return n;
}

/* ---- operations table ---- */

static const psc_transport_ops_t shm_ops = {
    .abi = PSC_TRANSPORT_ABI,
    .size = sizeof(psc_transport_ops_t),
    .name = "shm",
    .open = shm_open,
    .query = shm_query,
    .progress = shm_progress,
    .close = shm_close,
    .stop = shm_stop,
    .fini = shm_fini,
    .ep_create = shm_ep_create,
    .ep_address = shm_ep_address,
    .ep_connect = shm_ep_connect,
    .ep_close = shm_ep_close,
    .ep_stop = shm_ep_stop,
    .ep_fini = shm_ep_fini,
    .am_bcopy = shm_am_bcopy,
    .am_short = shm_am_short,
    .put = shm_put,
    .get = shm_get,
    .mem_register = shm_mem_register,
    .mem_deregister = shm_mem_deregister,
    .mem_revoke = shm_mem_revoke,
    .rkey_pack = shm_rkey_pack,
    .rkey_unpack = shm_rkey_unpack,
    .rkey_release = shm_rkey_release,
    .mem_share = shm_mem_share,
    .rkey_map = shm_rkey_map,
    .event_fd = shm_sleep_fd,
    .arm = shm_sleep_arm,
};

/* The only symbol that this library exports: returns the address of the
 * operations table. */
uintptr_t shm_transport(void);

uintptr_t shm_transport(void)
{
    return (uintptr_t)&shm_ops;
}
