/* Objects of an NI, in chunks that never move, and the handles that name them:
 * kind (3 bits), NI (3), generation (6), index (20). A handle of a closed
 * object is invalid, until the generation counter wraps around. */
#include <stdlib.h>
#include <string.h>

#include "nic.h"

#define CHUNK 64u
#define INDEX_BITS 20u
#define GENERATION_BITS 6u
#define NI_BITS 3u
#define GENERATION_MASK ((1u << GENERATION_BITS) - 1)

_Static_assert(PSNI_NIS == 1u << NI_BITS, "the handle has room for all");

/* ---- the NIs of the process ---- */

static struct {
    atomic_uint users;
    _Atomic(psni_ni_t *) nis[PSNI_NIS];
} process;

bool psni_library_ready(void)
{
    return atomic_load_explicit(&process.users, memory_order_acquire) > 0;
}

void psni_library_enter(void)
{
    atomic_fetch_add(&process.users, 1);
}

bool psni_library_leave(void)
{
    return psni_library_ready() && atomic_fetch_sub(&process.users, 1) == 1;
}

psni_ni_t *psni_library_ni(uint32_t index)
{
    return atomic_load_explicit(&process.nis[index], memory_order_acquire);
}

void psni_library_register(uint32_t index, psni_ni_t *ni)
{
    atomic_store_explicit(&process.nis[index], ni, memory_order_release);
}

/* ---- objects ---- */

int psni_pool_open(psni_pool_t *pool, psni_ni_t *ni, psni_kind_t kind,
                   size_t size, uint32_t limit)
{
    *pool = (psni_pool_t){.ni = ni, .kind = kind, .size = size, .limit = limit};
    pool->chunks = calloc(limit / CHUNK + 1, sizeof(void *));
    return pool->chunks == NULL ? PTL_NO_SPACE : PTL_OK;
}

void psni_pool_close(psni_pool_t *pool)
{
    for (uint32_t at = 0; pool->chunks != NULL && at < pool->made; at += CHUNK)
        free(pool->chunks[at / CHUNK]);
    free(pool->chunks);
    pool->chunks = NULL;
}

static psni_object_t *psni_pool_raw(const psni_pool_t *pool, uint32_t index)
{
    char *chunk = pool->chunks[index / CHUNK];

    return (psni_object_t *)(void *)(chunk + index % CHUNK * pool->size);
}

static bool psni_pool_grow(psni_pool_t *pool)
{
    void *chunk;

    if (pool->made >= pool->limit)
        return false;
    chunk = calloc(CHUNK, pool->size);
    if (chunk == NULL)
        return false;
    pool->chunks[pool->made / CHUNK] = chunk;
    for (uint32_t i = CHUNK; i-- > 0;) {
        psni_object_t *object = psni_pool_raw(pool, pool->made + i);

        object->index = pool->made + i;
        if (object->index >= pool->limit)
            continue;
        object->next = pool->free;
        pool->free = object;
    }
    pool->made += CHUNK;
    return true;
}

bool psni_pool_reserve(psni_pool_t *pool)
{
    return pool->free != NULL || psni_pool_grow(pool);
}

void *psni_pool_take(psni_pool_t *pool)
{
    psni_object_t *object;

    if (!psni_pool_reserve(pool))
        return NULL;
    object = pool->free;
    pool->free = object->next;
    memset(object + 1, 0, pool->size - sizeof(*object));
    object->ni = pool->ni;
    object->users = 0;
    object->kind = (uint8_t)pool->kind;
    object->live = true;
    return object;
}

void psni_pool_give(psni_pool_t *pool, void *gone)
{
    psni_object_t *object = gone;

    object->live = false;
    object->generation++;
    object->next = pool->free;
    pool->free = object;
}

psni_object_t *psni_pool_at(psni_pool_t *pool, uint32_t index)
{
    psni_object_t *object;

    if (index >= pool->made || index >= pool->limit)
        return NULL;
    object = psni_pool_raw(pool, index);
    return object->live ? object : NULL;
}

void psni_pool_drain(psni_pool_t *pool, void (*close)(void *object))
{
    for (uint32_t i = 0; i < pool->made; i++) {
        psni_object_t *object = psni_pool_at(pool, i);

        if (object != NULL)
            close(object);
    }
}

/* A handle is an integer in some headers of Portals 4 and a pointer in
 * others. */
static uint32_t psni_handle_bits(ptl_handle_any_t handle)
{
    return (uint32_t)(uintptr_t)handle;
}

ptl_handle_any_t psni_handle(const psni_object_t *object)
{
    uint32_t ni =
        object->kind == PSNI_KIND_NI ? object->index : object->ni->object.index;
    uint32_t index = object->kind == PSNI_KIND_NI ? 0 : object->index;
    uint32_t handle = object->kind;

    handle = handle << NI_BITS | ni;
    handle = handle << GENERATION_BITS | (object->generation & GENERATION_MASK);
    handle = handle << INDEX_BITS | index;
    return (ptl_handle_any_t)(uintptr_t)handle;
}

static bool psni_handle_names(ptl_handle_any_t handle,
                              const psni_object_t *object)
{
    return object != NULL && psni_handle(object) == handle;
}

void *psni_find(psni_ni_t *ni, ptl_handle_any_t handle, psni_kind_t kind)
{
    uint32_t index = psni_handle_bits(handle) & ((1u << INDEX_BITS) - 1);
    psni_object_t *object = psni_pool_at(&ni->pools[kind], index);

    return psni_handle_names(handle, object) ? object : NULL;
}

psni_ni_t *psni_enter_ni(ptl_handle_any_t handle, psni_kind_t kind)
{
    uint32_t top = psni_handle_bits(handle) >> (INDEX_BITS + GENERATION_BITS);
    psni_ni_t *ni = NULL;

    if (top >> NI_BITS == kind)
        ni = psni_library_ni(top & (PSNI_NIS - 1));
    if (ni != NULL)
        psc_lock_acquire(&ni->lock);
    return ni;
}

int psni_enter(ptl_handle_any_t handle, psni_kind_t kind, void *object_p)
{
    void *object;
    psni_ni_t *ni;

    if (!psni_library_ready())
        return PTL_NO_INIT;
    ni = psni_enter_ni(handle, kind);
    if (ni == NULL)
        return PTL_ARG_INVALID;
    if (kind == PSNI_KIND_NI)
        object = psni_handle_names(handle, &ni->object) ? ni : NULL;
    else
        object = psni_find(ni, handle, kind);
    if (object == NULL) {
        psc_lock_release(&ni->lock);
        return PTL_ARG_INVALID;
    }
    memcpy(object_p, &object, sizeof(object));
    return PTL_OK;
}

void psni_leave(psni_ni_t *ni)
{
    psc_lock_release(&ni->lock);
}

int psni_release(ptl_handle_any_t handle, psni_kind_t kind,
                 void (*close)(void *object))
{
    psni_object_t *object;
    psni_ni_t *ni;
    int rc = psni_enter(handle, kind, &object);

    if (rc != PTL_OK)
        return rc;
    ni = object->ni;
    if (object->users > 0)
        rc = PTL_IN_USE;
    else
        close(object);
    psni_leave(ni);
    return rc;
}

int PtlHandleIsEqual(ptl_handle_any_t handle1, ptl_handle_any_t handle2)
{
    return handle1 == handle2;
}

int PtlNIHandle(ptl_handle_any_t handle, ptl_handle_ni_t *ni_handle)
{
    uint32_t kind =
        psni_handle_bits(handle) >> (INDEX_BITS + GENERATION_BITS + NI_BITS);
    psni_object_t *object;
    int rc;

    if (kind < PSNI_KIND_NI || kind >= PSNI_KIND_OP || ni_handle == NULL)
        return psni_library_ready() ? PTL_ARG_INVALID : PTL_NO_INIT;
    rc = psni_enter(handle, (psni_kind_t)kind, &object);
    if (rc != PTL_OK)
        return rc;
    *ni_handle = psni_handle(&object->ni->object);
    psni_leave(object->ni);
    return PTL_OK;
}
