/* Creates and frees the objects that handles stand for. */
#include "objects.h"

#include <stdlib.h>
#include <string.h>

#define CHUNK_SIZE (1u << PSC_MPI_CHUNK_BITS)
#define GENERATIONS (1u << (PSC_MPI_HANDLE_BITS - PSC_MPI_INDEX_BITS))

static psc_mpi_object_t *object_at(const psc_mpi_table_t *table, uint32_t index)
{
    char *chunk = atomic_load_explicit(
        &table->chunks[index >> PSC_MPI_CHUNK_BITS], memory_order_acquire);

    return (psc_mpi_object_t *)(void *)(chunk +
                                        index % CHUNK_SIZE * table->size);
}

/* The list of free places has a count beside its head, so that a thread that
 * was interrupted between reading the head and replacing it notices that others
 * have taken and freed the place meanwhile. */
static void object_push(psc_mpi_table_t *table, psc_mpi_object_t *object)
{
    uint64_t head = atomic_load(&table->free), pushed;

    do {
        atomic_store_explicit(&object->next, (uint32_t)head,
                              memory_order_relaxed);
        pushed = ((head >> 32) + 1) << 32 | (object->index + 1);
    } while (!atomic_compare_exchange_weak(&table->free, &head, pushed));
}

static psc_mpi_object_t *object_pop(psc_mpi_table_t *table)
{
    uint64_t head = atomic_load(&table->free), rest;
    psc_mpi_object_t *object;

    do {
        if (!(uint32_t)head)
            return NULL;
        object = object_at(table, (uint32_t)head - 1);
        rest = ((head >> 32) + 1) << 32 |
               atomic_load_explicit(&object->next, memory_order_relaxed);
    } while (!atomic_compare_exchange_weak(&table->free, &head, rest));
    return object;
}

/* The lowest indices are used first. */
static void table_add(psc_mpi_table_t *table, char *chunk)
{
    uint32_t begin = table->n_chunks << PSC_MPI_CHUNK_BITS;

    atomic_store_explicit(&table->chunks[table->n_chunks++], chunk,
                          memory_order_release);
    for (uint32_t i = begin + CHUNK_SIZE; i-- > begin;) {
        psc_mpi_object_t *object = object_at(table, i);

        object->index = i;
        if (i >= table->first)
            object_push(table, object);
    }
}

static psc_mpi_object_t *table_grow(psc_mpi_table_t *table)
{
    psc_mpi_object_t *object;
    char *chunk = NULL;

    pthread_mutex_lock(&table->growing);
    object = object_pop(table); /* another thread may have grown it meanwhile */
    if (!object && table->n_chunks < PSC_MPI_CHUNKS)
        chunk = calloc(CHUNK_SIZE, table->size);
    if (chunk) {
        table_add(table, chunk);
        object = object_pop(table);
    }
    pthread_mutex_unlock(&table->growing);
    return object;
}

void *psc_mpi_object_create(psc_mpi_table_t *table)
{
    psc_mpi_object_t *object = object_pop(table);
    uint32_t number;

    if (!object)
        object = table_grow(table);
    if (!object)
        return NULL;
    memset(object + 1, 0, table->size - sizeof *object);
    number = object->generation << PSC_MPI_INDEX_BITS | object->index;
    atomic_store_explicit(
        &object->handle,
        (uint32_t)PSC_MPI_HANDLE(PSC_MPI_MADE, table->kind, number),
        memory_order_release);
    return object;
}

void psc_mpi_object_hide(void *object)
{
    psc_mpi_object_t *head = object;

    atomic_store_explicit(&head->handle, 0, memory_order_release);
}

void psc_mpi_object_free(psc_mpi_table_t *table, void *object)
{
    psc_mpi_object_t *head = object;

    psc_mpi_object_hide(object);
    head->generation = (head->generation + 1) % GENERATIONS;
    object_push(table, head);
}
