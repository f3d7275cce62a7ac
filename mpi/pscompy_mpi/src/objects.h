/* Tables of the objects that handles stand for.
 *
 * A handle has the object's index in its table, and the generation of that
 * place, which changes when the object is freed: a handle that was kept after
 * that finds nothing. Objects never move, so that a thread may use one while
 * another creates more. Neither finding, nor creating, nor freeing an object
 * takes a lock, but for the creation of one that needs more memory. */
#pragma once

#include <pthread.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>

#include "pscompy_mpi/abi_mpich.h"

#define PSC_MPI_INDEX_BITS 20
#define PSC_MPI_INDEX_MASK ((1u << PSC_MPI_INDEX_BITS) - 1)
#define PSC_MPI_CHUNK_BITS 8 /* 256 objects are allocated at once */
#define PSC_MPI_CHUNKS (1u << (PSC_MPI_INDEX_BITS - PSC_MPI_CHUNK_BITS))

/* Every object begins with it. */
typedef struct psc_mpi_object {
    /* the handle of the object; 0 while the place is free */
    _Atomic uint32_t handle;
    uint32_t index;
    uint32_t generation; /* of the next handle */
    _Atomic uint32_t next; /* 1 + the index of the next free place; 0: none */
} psc_mpi_object_t;

typedef struct psc_mpi_table {
    psc_mpi_kind_t kind;
    size_t size; /* bytes of an object */
    uint32_t first; /* the numbers of handles below it are taken */
    _Atomic uint64_t free; /* 1 + the first free index, and a count above it */
    uint32_t n_chunks;
    pthread_mutex_t growing;
    _Atomic(char *) chunks[PSC_MPI_CHUNKS];
} psc_mpi_table_t;

#define PSC_MPI_TABLE(kind_, type, first_)                                     \
    {.kind = (kind_),                                                          \
     .size = sizeof(type),                                                     \
     .first = (first_),                                                        \
     .growing = PTHREAD_MUTEX_INITIALIZER}

/* Returns a new object, all zeros but for its head, or NULL if no memory is
 * left. Its handle is psc_mpi_object_handle. */
void *psc_mpi_object_create(psc_mpi_table_t *table);
/* Let the object's handle find nothing from now on; the object stays. */
void psc_mpi_object_hide(void *object);
/* The object must not be used afterwards; its handle finds nothing. */
void psc_mpi_object_free(psc_mpi_table_t *table, void *object);

static inline int psc_mpi_object_handle(const void *object)
{
    const psc_mpi_object_t *head = object;

    return (int)atomic_load_explicit(&head->handle, memory_order_relaxed);
}

/* Returns the object of a handle, or NULL. */
static inline void *psc_mpi_object_find(psc_mpi_table_t *table, int handle)
{
    uint32_t index = (uint32_t)handle & PSC_MPI_INDEX_MASK;
    char *chunk = atomic_load_explicit(
        &table->chunks[index >> PSC_MPI_CHUNK_BITS], memory_order_acquire);
    psc_mpi_object_t *head;

    if (!chunk)
        return NULL;
    index &= (1u << PSC_MPI_CHUNK_BITS) - 1;
    head = (psc_mpi_object_t *)(void *)(chunk + index * table->size);
    return atomic_load_explicit(&head->handle, memory_order_acquire) ==
                   (uint32_t)handle
               ? head
               : NULL;
}
