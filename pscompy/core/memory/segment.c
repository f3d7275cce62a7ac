/* Segments of a pool, mapped at addresses where huge pages fit. A shared
 * segment is a sealed memory file with an identity (psc_segment_identity_t) in
 * its last page. A private or pinned segment has neither. */
#include "memory.h"

#include <fcntl.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/random.h>
#include <unistd.h>

#include "pscompy/transport/kit/mapping.h"
#include "pscompy/transport/kit/restart.h"

#ifndef F_SEAL_FUTURE_WRITE
#define F_SEAL_FUTURE_WRITE 0x0010
#endif
#ifndef MADV_POPULATE_WRITE
#define MADV_POPULATE_WRITE 23
#endif
#ifndef MADV_COLLAPSE
#define MADV_COLLAPSE 25
#endif

/* ---- the file ---- */

static int segment_open(size_t len)
{
    int fd = memfd_create("pscompy-pool", MFD_CLOEXEC | MFD_ALLOW_SEALING);

    if (fd >= 0 && PSC_RESTART(ftruncate(fd, (off_t)len)) != 0) {
        close(fd);
        return -1;
    }
    return fd;
}

/* Seal the file: after our own writable mapping no other can be made. */
static bool segment_seal(int fd)
{
    return fcntl(fd, F_ADD_SEALS,
                 F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_FUTURE_WRITE |
                     F_SEAL_SEAL) == 0;
}

/* ---- the mapping ---- */

static psc_segment_identity_t *segment_identity(psc_segment_t *segment)
{
    return (psc_segment_identity_t *)(void *)(segment->base + segment->len -
                                              psc_page_size());
}

/* Returns the length of the segment's memory. */
static size_t segment_memory(const psc_segment_t *segment)
{
    return segment->kind == PSC_SEGMENT_SHARED ? segment->len
                                               : segment->len - psc_page_size();
}

/* Make the memory file of a shared segment, with its identity. */
static bool segment_share(psc_segment_t *segment)
{
    uint8_t *id;

    segment->fd = segment_open(segment->len);
    if (segment->fd >= 0)
        segment->base = psc_mapping_create(segment->fd, segment->len,
                                           PROT_READ | PROT_WRITE);
    if (!segment->base || !segment_seal(segment->fd))
        return false;
    id = segment_identity(segment)->id;
    return getrandom(id, PSC_SEGMENT_ID_SIZE, 0) == PSC_SEGMENT_ID_SIZE;
}

static bool segment_map(psc_segment_t *segment)
{
    if (segment->kind == PSC_SEGMENT_SHARED)
        return segment_share(segment);
    segment->base =
        psc_mapping_create(-1, segment_memory(segment), PROT_READ | PROT_WRITE);
    return segment->base;
}

psc_status_t psc_segment_create(size_t len, psc_segment_kind_t kind,
                                psc_segment_t **segment_p)
{
    psc_segment_t *segment = calloc(1, sizeof *segment);

    if (!segment)
        return PSC_ERR_NO_MEMORY;
    segment->kind = kind;
    segment->fd = -1;
    segment->len = len + psc_page_size();
    segment->places = calloc(len / psc_page_size(), sizeof *segment->places);
    segment->warm = calloc(len / PSC_HUGE_PAGE + 1, sizeof *segment->warm);
    if (!segment->places || !segment->warm || !segment_map(segment)) {
        psc_segment_destroy(segment);
        return PSC_ERR_NO_MEMORY;
    }
    *segment_p = segment;
    return PSC_OK;
}

psc_status_t psc_segment_create_pinned(void *base, size_t len,
                                       psc_segment_t **segment_p)
{
    psc_segment_t *segment = calloc(1, sizeof *segment);

    if (!segment)
        return PSC_ERR_NO_MEMORY;
    segment->places = calloc(1, sizeof *segment->places);
    if (!segment->places) {
        free(segment);
        return PSC_ERR_NO_MEMORY;
    }
    segment->base = base;
    segment->len = len + psc_page_size();
    segment->kind = PSC_SEGMENT_PINNED;
    segment->fd = -1;
    *segment_p = segment;
    return PSC_OK;
}

void psc_segment_destroy(psc_segment_t *segment)
{
    if (segment->base && segment->kind != PSC_SEGMENT_PINNED)
        munmap(segment->base, segment_memory(segment));
    if (segment->fd >= 0)
        close(segment->fd);
    free(segment->places);
    free(segment->warm);
    free(segment);
}

void psc_segment_retire(psc_segment_t *segment)
{
    if (segment->kind == PSC_SEGMENT_SHARED)
        __atomic_store_n(&segment_identity(segment)->retired, 1,
                         __ATOMIC_RELEASE);
}

/* ---- pages of a segment ---- */

/* MADV_POPULATE_WRITE creates a page without a change of its bytes, which may
 * be another block's; MADV_COLLAPSE then creates the huge page around it in one
 * step. This takes a sixth of the time of page faults, here and at every peer,
 * and works where the system does not give huge pages by itself. If the calls
 * fail, pages are created one by one as they are used. */
static void segment_warm_span(uint8_t *at)
{
    madvise(at, psc_page_size(), MADV_POPULATE_WRITE);
    madvise(at, PSC_HUGE_PAGE, MADV_COLLAPSE);
}

void psc_segment_warm(psc_segment_t *segment, size_t offset, size_t len)
{
    size_t spans = (segment->len - psc_page_size()) / PSC_HUGE_PAGE;
    size_t last = (offset + len - 1) / PSC_HUGE_PAGE;

    for (size_t i = offset / PSC_HUGE_PAGE; i <= last && i < spans; i++) {
        if (atomic_exchange(&segment->warm[i], true))
            continue;
        segment_warm_span(segment->base + i * PSC_HUGE_PAGE);
    }
}

/* ---- registrations with interfaces ---- */

static psc_status_t segment_register(psc_segment_t *segment,
                                     psc_iface_slot_t *slot, psc_mem_t **mem_p)
{
    if (segment->kind == PSC_SEGMENT_SHARED && slot->attr.caps & PSC_CAP_MAP)
        return slot->ops->mem_share(slot->iface, segment->base, segment->len,
                                    segment->fd, mem_p);
    return slot->ops->mem_register(slot->iface, NULL, segment->base,
                                   segment_memory(segment), mem_p);
}

psc_mem_t *psc_segment_mem(psc_segment_t *segment, psc_iface_slot_t *slot)
{
    psc_mem_t **mem = &segment->mem[slot->index];

    if (!*mem && segment_register(segment, slot, mem) != PSC_OK)
        *mem = NULL;
    return *mem;
}

void psc_segment_unregister(psc_segment_t *segment, psc_worker_t *worker)
{
    psc_iface_for_each(slot, &worker->interfaces) {
        psc_mem_t **mem = &segment->mem[slot->index];

        if (*mem)
            slot->ops->mem_deregister(slot->iface, *mem);
        *mem = NULL;
    }
}
