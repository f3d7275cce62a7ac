/* Operations of reductions: MPI's own, of which the core knows most, and those
 * of the program. */
#include "library.h"

#include <string.h>

/* ---- operations of the program ---- */

typedef struct made {
    psc_mpi_object_t head;
    psc_mpi_function_of_op_t function;
    bool commutes;
} made_t;

static psc_mpi_table_t ops = PSC_MPI_TABLE(PSC_MPI_OP, made_t, 0);

static psc_status_t call_made(const void *in, void *inout, uint64_t n,
                              void *arg)
{
    psc_mpi_combine_t *it = arg;
    MPI_Count count = (MPI_Count)n;
    int narrow = (int)n;

    if (it->function.wide)
        it->function.wide((void *)in, inout, &count, &it->type);
    else
        it->function.narrow((void *)in, inout, &narrow, &it->type);
    return PSC_OK;
}

static int op_create(psc_mpi_function_of_op_t function, int commutes,
                     MPI_Op *handle)
{
    made_t *made = psc_mpi_object_create(&ops);

    if (!made)
        return psc_mpi_raise(NULL, MPI_ERR_NO_MEM);
    made->function = function;
    made->commutes = commutes != 0;
    *handle = psc_mpi_object_handle(made);
    return MPI_SUCCESS;
}

int MPI_Op_create(MPI_User_function *function, int commutes, MPI_Op *op)
{
    return op_create((psc_mpi_function_of_op_t){.narrow = function}, commutes,
                     op);
}

int MPI_Op_create_c(MPI_User_function_c *function, int commutes, MPI_Op *op)
{
    return op_create((psc_mpi_function_of_op_t){.wide = function}, commutes,
                     op);
}

int MPI_Op_free(MPI_Op *handle)
{
    made_t *made = psc_mpi_object_find(&ops, *handle);

    if (!made)
        return psc_mpi_raise(NULL, MPI_ERR_OP);
    psc_mpi_object_free(&ops, made);
    *handle = MPI_OP_NULL;
    return MPI_SUCCESS;
}

static bool is_predefined(MPI_Op op)
{
    return op >= MPI_MAX && op <= MPI_NO_OP;
}

int MPI_Op_commutative(MPI_Op handle, int *flag)
{
    const made_t *made = psc_mpi_object_find(&ops, handle);

    if (!made && !is_predefined(handle))
        return psc_mpi_raise(NULL, MPI_ERR_OP);
    *flag = made ? made->commutes : handle != MPI_REPLACE;
    return MPI_SUCCESS;
}

/* ---- operations of the core ---- */

/* The core's types, by the lowest byte of MPI's; 1 + the type. */
#define KNOW(mpi, core) [MPI_##mpi & 0xff] = 1 + PSC_TYPE_##core
static const unsigned char core_types[256] = {
    KNOW(CHAR, INT8),
    KNOW(SIGNED_CHAR, INT8),
    KNOW(UNSIGNED_CHAR, UINT8),
    KNOW(BYTE, UINT8),
    KNOW(SHORT, INT16),
    KNOW(UNSIGNED_SHORT, UINT16),
    KNOW(INT, INT32),
    KNOW(UNSIGNED, UINT32),
    KNOW(LONG, INT64),
    KNOW(UNSIGNED_LONG, UINT64),
    KNOW(LONG_LONG, INT64),
    KNOW(UNSIGNED_LONG_LONG, UINT64),
    KNOW(WCHAR, INT32),
    KNOW(FLOAT, FLOAT32),
    KNOW(DOUBLE, FLOAT64),
    KNOW(INTEGER, INT32),
    KNOW(LOGICAL, INT32),
    KNOW(REAL, FLOAT32),
    KNOW(DOUBLE_PRECISION, FLOAT64),
    KNOW(COMPLEX, COMPLEX64),
    KNOW(DOUBLE_COMPLEX, COMPLEX128),
    KNOW(REAL4, FLOAT32),
    KNOW(REAL8, FLOAT64),
    KNOW(COMPLEX8, COMPLEX64),
    KNOW(COMPLEX16, COMPLEX128),
    KNOW(INTEGER1, INT8),
    KNOW(INTEGER2, INT16),
    KNOW(INTEGER4, INT32),
    KNOW(INTEGER8, INT64),
    KNOW(C_BOOL, BOOL),
    KNOW(CXX_BOOL, BOOL),
    KNOW(C_FLOAT_COMPLEX, COMPLEX64),
    KNOW(C_DOUBLE_COMPLEX, COMPLEX128),
    KNOW(CXX_FLOAT_COMPLEX, COMPLEX64),
    KNOW(CXX_DOUBLE_COMPLEX, COMPLEX128),
    KNOW(INT8_T, INT8),
    KNOW(INT16_T, INT16),
    KNOW(INT32_T, INT32),
    KNOW(INT64_T, INT64),
    KNOW(UINT8_T, UINT8),
    KNOW(UINT16_T, UINT16),
    KNOW(UINT32_T, UINT32),
    KNOW(UINT64_T, UINT64),
    KNOW(AINT, INT64),
    KNOW(OFFSET, INT64),
    KNOW(COUNT, INT64),
    KNOW(FLOAT16_T, FLOAT16),
};

#define OP(mpi, core) [MPI_##mpi & 0xff] = 1 + PSC_OP_##core
static const unsigned char core_ops[256] = {
    OP(SUM, SUM), OP(PROD, PROD), OP(MIN, MIN),   OP(MAX, MAX), OP(LAND, LAND),
    OP(LOR, LOR), OP(LXOR, LXOR), OP(BAND, BAND), OP(BOR, BOR), OP(BXOR, BXOR),
};

static bool fill_core(psc_coll_args_t *args, MPI_Op op, MPI_Datatype type)
{
    unsigned known_op = core_ops[op & 0xff];
    unsigned known_type = core_types[type & 0xff];

    if ((uint32_t)type >> 16 != 0x4c00 || !known_op || !known_type)
        return false;
    args->op = (psc_op_t)(known_op - 1);
    args->type = (psc_type_t)(known_type - 1);
    return true;
}

/* ---- operations that only MPI has ---- */

/* A value and an index: of two equal values the lower index stays. */
#define LOC(name, value_t, before)                                             \
    static psc_status_t name(const void *in, void *inout, uint64_t n,          \
                             void *arg)                                        \
    {                                                                          \
        struct pair {                                                          \
            value_t value;                                                     \
            int index;                                                         \
        };                                                                     \
        const struct pair *a = in;                                             \
        struct pair *b = inout;                                                \
                                                                               \
        (void)arg;                                                             \
        for (uint64_t i = 0; i < n; i++) {                                     \
            if (a[i].value before b[i].value ||                                \
                (a[i].value == b[i].value && a[i].index < b[i].index))         \
                b[i] = a[i];                                                   \
        }                                                                      \
        return PSC_OK;                                                         \
    }

#define LOCS(name, value_t)                                                    \
    LOC(min_##name, value_t, <) LOC(max_##name, value_t, >)

LOCS(float, float)
LOCS(double, double)
LOCS(long, long)
LOCS(short, short)
LOCS(int, int)
LOCS(long_double, long double)

/* Long doubles, real and complex, which the core does not know. */
#define LONG(name, value_t, result)                                            \
    static psc_status_t name(const void *in, void *inout, uint64_t n,          \
                             void *arg)                                        \
    {                                                                          \
        const value_t *a = in;                                                 \
        value_t *b = inout;                                                    \
                                                                               \
        (void)arg;                                                             \
        for (uint64_t i = 0; i < n; i++)                                       \
            b[i] = result;                                                     \
        return PSC_OK;                                                         \
    }

LONG(long_sum, long double, a[i] + b[i])
LONG(long_prod, long double, a[i] * b[i])
LONG(long_min, long double, a[i] < b[i] ? a[i] : b[i])
LONG(long_max, long double, a[i] > b[i] ? a[i] : b[i])
LONG(long_complex_sum, _Complex long double, a[i] + b[i])
LONG(long_complex_prod, _Complex long double, a[i] * b[i])

static const struct special {
    MPI_Datatype type;
    MPI_Op op;
    psc_combine_t combine;
} specials[] = {
    {MPI_FLOAT_INT, MPI_MINLOC, min_float},
    {MPI_FLOAT_INT, MPI_MAXLOC, max_float},
    {MPI_DOUBLE_INT, MPI_MINLOC, min_double},
    {MPI_DOUBLE_INT, MPI_MAXLOC, max_double},
    {MPI_LONG_INT, MPI_MINLOC, min_long},
    {MPI_LONG_INT, MPI_MAXLOC, max_long},
    {MPI_SHORT_INT, MPI_MINLOC, min_short},
    {MPI_SHORT_INT, MPI_MAXLOC, max_short},
    {MPI_2INT, MPI_MINLOC, min_int},
    {MPI_2INT, MPI_MAXLOC, max_int},
    {MPI_LONG_DOUBLE_INT, MPI_MINLOC, min_long_double},
    {MPI_LONG_DOUBLE_INT, MPI_MAXLOC, max_long_double},
    {MPI_LONG_DOUBLE, MPI_SUM, long_sum},
    {MPI_LONG_DOUBLE, MPI_PROD, long_prod},
    {MPI_LONG_DOUBLE, MPI_MIN, long_min},
    {MPI_LONG_DOUBLE, MPI_MAX, long_max},
    {MPI_C_LONG_DOUBLE_COMPLEX, MPI_SUM, long_complex_sum},
    {MPI_C_LONG_DOUBLE_COMPLEX, MPI_PROD, long_complex_prod},
};

static bool fill_special(psc_coll_args_t *args, MPI_Op op, MPI_Datatype type)
{
    for (size_t i = 0; i < sizeof specials / sizeof *specials; i++) {
        if (specials[i].type == type && specials[i].op == op) {
            args->combine = specials[i].combine;
            args->commutes = true;
            return true;
        }
    }
    return false;
}

int psc_mpi_op_fill(psc_coll_args_t *args, psc_mpi_combine_t *combine,
                    MPI_Op op, MPI_Datatype type)
{
    const made_t *made = psc_mpi_object_find(&ops, op);

    if (!made)
        return is_predefined(op) && (fill_core(args, op, type) ||
                                     fill_special(args, op, type))
                   ? MPI_SUCCESS
                   : MPI_ERR_OP;
    *combine = (psc_mpi_combine_t){.function = made->function, .type = type};
    args->combine = call_made;
    args->arg = combine;
    args->commutes = made->commutes;
    return MPI_SUCCESS;
}

/* ---- without a communicator ---- */

int MPI_Reduce_local_c(const void *in, void *inout, MPI_Count n,
                       MPI_Datatype type, MPI_Op op)
{
    const psc_mpi_type_t *found = psc_mpi_type_find(type);
    psc_coll_args_t args = {0};
    psc_mpi_combine_t combine;
    int code = n < 0                       ? MPI_ERR_COUNT
               : found && found->committed ? MPI_SUCCESS
                                           : MPI_ERR_TYPE;

    if (!psc_mpi_running())
        return psc_mpi_raise(NULL, MPI_ERR_OTHER);
    if (code == MPI_SUCCESS)
        code = psc_mpi_op_fill(&args, &combine, op, type);
    args.count = (uint64_t)n;
    if (code == MPI_SUCCESS && n > 0 &&
        psc_mpi.host.api->coll_combine(&args, in, inout) != PSC_OK)
        code = MPI_ERR_OP;
    return code == MPI_SUCCESS ? code : psc_mpi_raise(NULL, code);
}
