/* The settings PSP_SHM_*, and the ids of machine, user and process. */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "memory.h"
#include "pscompy/transport/kit/settings.h"
#include "pscompy/transport/kit/restart.h"

#define SHM_BOOT_ID "/proc/sys/kernel/random/boot_id"

static shm_cma_mode_t shm_setting_cma(const psc_open_params_t *params)
{
    const char *text = psc_setting_text(params, "CMA");

    if (strcmp(text, "0") == 0)
        return SHM_CMA_OFF;
    return strcmp(text, "1") == 0 ? SHM_CMA_FORCE : SHM_CMA_AUTO;
}

psc_status_t shm_iface_configure(shm_iface_t *iface,
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

/* Parses 32 hexadecimal digits with dashes between them. */
static bool shm_boot_parse(const char *text, uint8_t *boot)
{
    for (unsigned i = 0; i < SHM_ID_SIZE; i++, text += 2) {
        text += *text == '-';
        if (sscanf(text, "%2hhx", &boot[i]) != 1)
            return false;
    }
    return true;
}

psc_status_t shm_iface_identify(shm_iface_t *iface, char *reason)
{
    char text[64] = {0};
    int fd = PSC_RESTART(open(SHM_BOOT_ID, O_RDONLY | O_CLOEXEC));
    ssize_t n = fd < 0 ? -1 : PSC_RESTART(read(fd, text, sizeof text - 1));

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
