/* Types: finding them, and what C knows of those that the program has made.
 * Python constructs them, and says at the commit where their data is. */
#include "library.h"

#include <stdlib.h>
#include <string.h>

/* ---- predefined ---- */

/* The types of one item, each at the place of the lowest byte of its handle. */
#define X(name, number)                                                        \
    [(number) & 0xff] = {.handle = (int)(number),                              \
                         .size = (number) >> 8 & 0xff,                         \
                         .extent = (number) >> 8 & 0xff,                       \
                         .true_extent = (number) >> 8 & 0xff,                  \
                         .committed = true},
static const psc_mpi_type_t plain_types[256] = {PSC_MPI_TYPES(X)};
#undef X

/* A value and an int behind it. */
typedef struct pair {
    psc_mpi_type_t type;
    psc_mpi_block_t blocks[2];
    psc_mpi_element_t elements[2];
} pair_t;

#define PAIR(name, value)                                                      \
    [MPI_##name & 0xff] = {                                                    \
        .type = {.handle = MPI_##name,                                         \
                 .size = sizeof(value) + sizeof(int),                          \
                 .extent = sizeof(struct {                                     \
                     value first;                                              \
                     int second;                                               \
                 }),                                                           \
                 .true_extent = PAIR_INT(value) + (MPI_Count)sizeof(int),      \
                 .committed = true,                                            \
                 .n_blocks = 2,                                                \
                 .blocks = pairs[MPI_##name & 0xff].blocks,                    \
                 .n_elements = 2,                                              \
                 .times = 1,                                                   \
                 .elements = pairs[MPI_##name & 0xff].elements},               \
        .blocks = {{.run = sizeof(value)},                                     \
                   {.offset = PAIR_INT(value), .run = sizeof(int)}},           \
        .elements = {{sizeof(value), 1}, {sizeof(int), 1}}}
#define PAIR_INT(value)                                                        \
    ((MPI_Count)((sizeof(value) + sizeof(int) - 1) / sizeof(int) * sizeof(int)))

static const pair_t pairs[] = {PAIR(FLOAT_INT, float), PAIR(DOUBLE_INT, double),
                               PAIR(LONG_INT, long), PAIR(SHORT_INT, short),
                               PAIR(LONG_DOUBLE_INT, long double)};

static const psc_mpi_type_t *find_pair(MPI_Datatype type)
{
    uint32_t number = (uint32_t)type - (uint32_t)MPI_FLOAT_INT;

    return number < sizeof pairs / sizeof *pairs ? &pairs[number].type : NULL;
}

/* ---- made by the program ---- */

/* Freed when the program has freed it and no message uses it. */
typedef struct made {
    psc_mpi_object_t head;
    psc_mpi_type_t type;
    atomic_int holders;
} made_t;

static psc_mpi_table_t types =
    PSC_MPI_TABLE(PSC_MPI_TYPE, made_t, PSC_MPI_TYPES_MADE);

static made_t *made_of(const psc_mpi_type_t *type)
{
    return (made_t *)(void *)((char *)(uintptr_t)type - offsetof(made_t, type));
}

const psc_mpi_type_t *psc_mpi_type_find(MPI_Datatype type)
{
    const psc_mpi_type_t *plain = plain_types + (type & 0xff);
    made_t *made;

    if (plain->handle == type && type)
        return plain;
    made = psc_mpi_object_find(&types, type);
    return made ? &made->type : find_pair(type);
}

void psc_mpi_type_hold(const psc_mpi_type_t *type)
{
    if (type->made)
        atomic_fetch_add(&made_of(type)->holders, 1);
}

void psc_mpi_type_let_go(const psc_mpi_type_t *type)
{
    made_t *made = made_of(type);

    if (!type->made || atomic_fetch_sub(&made->holders, 1) > 1)
        return;
    free((void *)(uintptr_t)type->blocks);
    free((void *)(uintptr_t)type->elements);
    psc_mpi_object_free(&types, made);
}

MPI_Datatype psc_mpi_type_create(const MPI_Count bounds[5])
{
    made_t *made = psc_mpi_object_create(&types);

    if (!made)
        return MPI_DATATYPE_NULL;
    atomic_store(&made->holders, 1);
    made->type = (psc_mpi_type_t){.handle = psc_mpi_object_handle(made),
                                  .size = bounds[0],
                                  .lb = bounds[1],
                                  .extent = bounds[2],
                                  .true_lb = bounds[3],
                                  .true_extent = bounds[4],
                                  .made = true};
    return made->type.handle;
}

void psc_mpi_type_free(MPI_Datatype handle)
{
    made_t *made = psc_mpi_object_find(&types, handle);

    if (!made)
        return;
    psc_mpi_object_hide(made);
    psc_mpi_type_let_go(&made->type);
}

/* Fill in blocks from numbers: of each its offset, run, number of dimensions,
 * and of each of these the number of items and their distance. */
static void read_blocks(psc_mpi_block_t *blocks, size_t n,
                        const int64_t *numbers)
{
    for (size_t i = 0; i < n; i++) {
        blocks[i].offset = numbers[0];
        blocks[i].run = (size_t)numbers[1];
        blocks[i].n_dims = (uint32_t)numbers[2];
        numbers += 3;
        for (uint32_t dim = 0; dim < blocks[i].n_dims; dim++, numbers += 2)
            blocks[i].dims[dim] = (psc_dim_t){(uint64_t)numbers[0], numbers[1]};
    }
}

static uint64_t count_runs(const psc_mpi_block_t *blocks, size_t n)
{
    uint64_t found = 0;

    for (size_t i = 0; i < n; i++) {
        uint64_t runs = 1;

        for (uint32_t dim = 0; dim < blocks[i].n_dims; dim++)
            runs *= blocks[i].dims[dim].n;
        found += runs;
    }
    return found;
}

bool psc_mpi_type_commit(MPI_Datatype handle, const psc_mpi_commit_args_t *args)
{
    made_t *made = psc_mpi_object_find(&types, handle);
    psc_mpi_block_t *blocks = calloc(args->n_blocks + 1, sizeof *blocks);
    psc_mpi_element_t *elements =
        calloc(args->n_elements + 1, sizeof *elements);

    if (!made || made->type.committed || !blocks || !elements) {
        free(blocks);
        free(elements);
        return made && made->type.committed;
    }
    read_blocks(blocks, args->n_blocks, args->blocks);
    for (size_t i = 0; i < args->n_elements; i++)
        elements[i] = (psc_mpi_element_t){args->elements[2 * i],
                                          args->elements[2 * i + 1]};
    made->type.blocks = blocks;
    made->type.n_blocks = args->n_blocks;
    made->type.n_runs = count_runs(blocks, args->n_blocks);
    made->type.elements = elements;
    made->type.n_elements = args->n_elements;
    made->type.times = args->times;
    made->type.committed = true;
    return true;
}

/* ---- elements ---- */

/* Returns the number of basic elements in these bytes, which are less than an
 * item has, or MPI_UNDEFINED if they end amid an element. */
static MPI_Count elements_in(const psc_mpi_type_t *type, MPI_Count nbytes)
{
    MPI_Count found = 0;

    for (MPI_Count k = 0; k < type->times && nbytes > 0; k++) {
        for (size_t i = 0; i < type->n_elements && nbytes > 0; i++) {
            const psc_mpi_element_t *it = type->elements + i;
            MPI_Count n = nbytes / it->size < it->n ? nbytes / it->size : it->n;

            if (n < it->n && nbytes % it->size)
                return MPI_UNDEFINED;
            nbytes -= n * it->size;
            found += n;
        }
    }
    return found;
}

MPI_Count psc_mpi_type_elements(const psc_mpi_type_t *type, MPI_Count nbytes)
{
    MPI_Count whole, rest, each = 0;

    if (type->size == 0)
        return nbytes ? MPI_UNDEFINED : 0;
    whole = nbytes / type->size;
    if (!type->n_elements) /* one element, or two of MPI_2INT */
        return type->handle != MPI_2INT
                   ? (nbytes % type->size ? MPI_UNDEFINED : whole)
               : nbytes % (MPI_Count)sizeof(int)
                   ? MPI_UNDEFINED
                   : nbytes / (MPI_Count)sizeof(int);
    rest = elements_in(type, nbytes % type->size);
    for (size_t i = 0; i < type->n_elements; i++)
        each += type->elements[i].n;
    return rest == MPI_UNDEFINED ? rest : whole * each * type->times + rest;
}

/* ---- functions ---- */

int MPI_Type_size_c(MPI_Datatype type, MPI_Count *size)
{
    const psc_mpi_type_t *found = psc_mpi_type_find(type);

    if (!found)
        return psc_mpi_raise(NULL, MPI_ERR_TYPE);
    *size = found->size;
    return MPI_SUCCESS;
}

int MPI_Type_get_extent_c(MPI_Datatype type, MPI_Count *lb, MPI_Count *extent)
{
    const psc_mpi_type_t *found = psc_mpi_type_find(type);

    if (!found)
        return psc_mpi_raise(NULL, MPI_ERR_TYPE);
    *lb = found->lb;
    *extent = found->extent;
    return MPI_SUCCESS;
}

int MPI_Type_get_true_extent_c(MPI_Datatype type, MPI_Count *lb,
                               MPI_Count *extent)
{
    const psc_mpi_type_t *found = psc_mpi_type_find(type);

    if (!found)
        return psc_mpi_raise(NULL, MPI_ERR_TYPE);
    *lb = found->true_lb;
    *extent = found->true_extent;
    return MPI_SUCCESS;
}
