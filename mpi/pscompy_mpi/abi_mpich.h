/* MPICH's ABI, by which programs that were compiled for libmpi.so.12 call this
 * library: the types of arguments, and the numbers of handles and constants.
 * These numbers are facts, found by printing them from mpi4py's build for this
 * ABI and from public documentation. Other files take them from here; but
 * types.py, src/types.c and src/operation.c know how those of types are made.
 *
 * A handle is an int. Its two highest bits say how it came to be
 * (psc_mpi_origin_t), the next four bits are its kind (psc_mpi_kind_t), the
 * other 26 bits are the library's own. */
#pragma once

#include <stddef.h>
#include <stdint.h>

typedef long MPI_Aint;
typedef long long MPI_Count;
typedef long long MPI_Offset;
typedef int MPI_Fint;

typedef int MPI_Comm;
typedef int MPI_Group;
typedef int MPI_Datatype;
typedef int MPI_Errhandler;
typedef int MPI_Op;
typedef int MPI_Info;
typedef int MPI_Win;
typedef int MPI_Request;
typedef int MPI_Message;
typedef int MPI_Session;
typedef struct psc_mpi_file *MPI_File;

typedef struct MPI_Status {
    int count_low; /* bytes of the message, the low 32 bits */
    /* bit 0: the request was cancelled; above it the high bits of the bytes */
    int count_high_and_cancelled;
    int MPI_SOURCE;
    int MPI_TAG;
    int MPI_ERROR;
} MPI_Status;

#define MPI_F_STATUS_SIZE 5 /* MPI_Fint in a status; as in C, one for one */

#define MPI_BOTTOM ((void *)0)
#define MPI_IN_PLACE ((void *)-1)
#define MPI_BUFFER_AUTOMATIC ((void *)-2)
#define MPI_STATUS_IGNORE ((MPI_Status *)1)
#define MPI_STATUSES_IGNORE ((MPI_Status *)1)
#define MPI_ERRCODES_IGNORE ((int *)0)

/* Addresses that stand for weights: no pointer to numbers, but to be compared
 * with. */
extern int *const MPI_UNWEIGHTED, *const MPI_WEIGHTS_EMPTY;

/* ---- handles ---- */

typedef enum psc_mpi_origin {
    PSC_MPI_NULL = 0, /* a null handle */
    PSC_MPI_PREDEFINED = 1,
    PSC_MPI_MADE = 2 /* by a call of the program */
} psc_mpi_origin_t;

typedef enum psc_mpi_kind {
    PSC_MPI_COMM = 1,
    PSC_MPI_GROUP = 2,
    PSC_MPI_TYPE = 3,
    PSC_MPI_ERRHANDLER = 5,
    PSC_MPI_OP = 6,
    PSC_MPI_INFO = 7,
    PSC_MPI_WIN = 8,
    PSC_MPI_KEYVAL = 9,
    PSC_MPI_REQUEST = 11, /* also of messages */
    PSC_MPI_SESSION = 14
} psc_mpi_kind_t;

enum psc_mpi_handle_shift {
    PSC_MPI_HANDLE_BITS = 26, /* where the kind begins */
    PSC_MPI_ORIGIN_SHIFT = 30
};

#define PSC_MPI_HANDLE_MASK ((1u << PSC_MPI_HANDLE_BITS) - 1)
#define PSC_MPI_HANDLE(origin, kind, number)                                   \
    ((int)((uint32_t)(origin) << PSC_MPI_ORIGIN_SHIFT |                        \
           (uint32_t)(kind) << PSC_MPI_HANDLE_BITS | (uint32_t)(number)))

static inline psc_mpi_origin_t psc_mpi_handle_origin(int handle)
{
    return (psc_mpi_origin_t)((uint32_t)handle >> PSC_MPI_ORIGIN_SHIFT);
}

static inline psc_mpi_kind_t psc_mpi_handle_kind(int handle)
{
    return (psc_mpi_kind_t)((uint32_t)handle >> PSC_MPI_HANDLE_BITS & 0xf);
}

static inline uint32_t psc_mpi_handle_number(int handle)
{
    return (uint32_t)handle & PSC_MPI_HANDLE_MASK;
}

/* Each list of predefined handles has an X(name, number). */
#define PSC_MPI_COMMS(X)                                                       \
    X(COMM_NULL, 0x04000000)                                                   \
    X(COMM_WORLD, 0x44000000)                                                  \
    X(COMM_SELF, 0x44000001)

#define PSC_MPI_GROUPS(X)                                                      \
    X(GROUP_NULL, 0x08000000)                                                  \
    X(GROUP_EMPTY, 0x48000000)

#define PSC_MPI_ERRHANDLERS(X)                                                 \
    X(ERRHANDLER_NULL, 0x14000000)                                             \
    X(ERRORS_ARE_FATAL, 0x54000000)                                            \
    X(ERRORS_RETURN, 0x54000001)                                               \
    X(ERRORS_ABORT, 0x54000003)

#define PSC_MPI_OPS(X)                                                         \
    X(OP_NULL, 0x18000000)                                                     \
    X(MAX, 0x58000001)                                                         \
    X(MIN, 0x58000002)                                                         \
    X(SUM, 0x58000003)                                                         \
    X(PROD, 0x58000004)                                                        \
    X(LAND, 0x58000005)                                                        \
    X(BAND, 0x58000006)                                                        \
    X(LOR, 0x58000007)                                                         \
    X(BOR, 0x58000008)                                                         \
    X(LXOR, 0x58000009)                                                        \
    X(BXOR, 0x5800000a)                                                        \
    X(MINLOC, 0x5800000b)                                                      \
    X(MAXLOC, 0x5800000c)                                                      \
    X(REPLACE, 0x5800000d)                                                     \
    X(NO_OP, 0x5800000e)

#define PSC_MPI_OTHERS(X)                                                      \
    X(INFO_NULL, 0x1c000000)                                                   \
    X(INFO_ENV, 0x5c000001)                                                    \
    X(WIN_NULL, 0x20000000)                                                    \
    X(REQUEST_NULL, 0x2c000000)                                                \
    X(MESSAGE_NULL, 0x2c000000)                                                \
    X(MESSAGE_NO_PROC, 0x6c000000)                                             \
    X(SESSION_NULL, 0x38000000)

/* The types of one item. The high half of the number says so, bits 8 to 15 are
 * the size in bytes, and the low byte is another one for each type. */
#define PSC_MPI_TYPES(X)                                                       \
    X(CHAR, 0x4c000101)                                                        \
    X(UNSIGNED_CHAR, 0x4c000102)                                               \
    X(SHORT, 0x4c000203)                                                       \
    X(UNSIGNED_SHORT, 0x4c000204)                                              \
    X(INT, 0x4c000405)                                                         \
    X(UNSIGNED, 0x4c000406)                                                    \
    X(LONG, 0x4c000807)                                                        \
    X(UNSIGNED_LONG, 0x4c000808)                                               \
    X(LONG_LONG, 0x4c000809)                                                   \
    X(FLOAT, 0x4c00040a)                                                       \
    X(DOUBLE, 0x4c00080b)                                                      \
    X(LONG_DOUBLE, 0x4c00100c)                                                 \
    X(BYTE, 0x4c00010d)                                                        \
    X(WCHAR, 0x4c00040e)                                                       \
    X(PACKED, 0x4c00010f)                                                      \
    X(2INT, 0x4c000816)                                                        \
    X(SIGNED_CHAR, 0x4c000118)                                                 \
    X(UNSIGNED_LONG_LONG, 0x4c000819)                                          \
    X(CHARACTER, 0x4c00011a)                                                   \
    X(INTEGER, 0x4c00041b)                                                     \
    X(REAL, 0x4c00041c)                                                        \
    X(LOGICAL, 0x4c00041d)                                                     \
    X(COMPLEX, 0x4c00081e)                                                     \
    X(DOUBLE_PRECISION, 0x4c00081f)                                            \
    X(DOUBLE_COMPLEX, 0x4c001022)                                              \
    X(REAL4, 0x4c000427)                                                       \
    X(COMPLEX8, 0x4c000828)                                                    \
    X(REAL8, 0x4c000829)                                                       \
    X(COMPLEX16, 0x4c00102a)                                                   \
    X(REAL16, 0x4c00102b)                                                      \
    X(COMPLEX32, 0x4c00202c)                                                   \
    X(INTEGER1, 0x4c00012d)                                                    \
    X(INTEGER2, 0x4c00022f)                                                    \
    X(INTEGER4, 0x4c000430)                                                    \
    X(INTEGER8, 0x4c000831)                                                    \
    X(CXX_BOOL, 0x4c000133)                                                    \
    X(CXX_FLOAT_COMPLEX, 0x4c000834)                                           \
    X(CXX_DOUBLE_COMPLEX, 0x4c001035)                                          \
    X(CXX_LONG_DOUBLE_COMPLEX, 0x4c002036)                                     \
    X(INT8_T, 0x4c000137)                                                      \
    X(INT16_T, 0x4c000238)                                                     \
    X(INT32_T, 0x4c000439)                                                     \
    X(INT64_T, 0x4c00083a)                                                     \
    X(UINT8_T, 0x4c00013b)                                                     \
    X(UINT16_T, 0x4c00023c)                                                    \
    X(UINT32_T, 0x4c00043d)                                                    \
    X(UINT64_T, 0x4c00083e)                                                    \
    X(C_BOOL, 0x4c00013f)                                                      \
    X(C_FLOAT_COMPLEX, 0x4c000840)                                             \
    X(C_DOUBLE_COMPLEX, 0x4c001041)                                            \
    X(C_LONG_DOUBLE_COMPLEX, 0x4c002042)                                       \
    X(AINT, 0x4c000843)                                                        \
    X(OFFSET, 0x4c000844)                                                      \
    X(COUNT, 0x4c000845)                                                       \
    X(FLOAT16_T, 0x4c000246)

/* The types of a value and an index, with gaps in them. Their numbers look like
 * those of types that the program has made, which therefore start at
 * PSC_MPI_TYPES_MADE. */
#define PSC_MPI_PAIRS(X)                                                       \
    X(FLOAT_INT, 0x8c000000)                                                   \
    X(DOUBLE_INT, 0x8c000001)                                                  \
    X(LONG_INT, 0x8c000002)                                                    \
    X(SHORT_INT, 0x8c000003)                                                   \
    X(LONG_DOUBLE_INT, 0x8c000004)

#define PSC_MPI_TYPES_MADE 5

#define X(name, number) MPI_##name = (int)number,
enum psc_mpi_predefined { PSC_MPI_COMMS(X) PSC_MPI_GROUPS(X) };
enum psc_mpi_predefined_ops { PSC_MPI_OPS(X) };
enum psc_mpi_predefined_errhandlers { PSC_MPI_ERRHANDLERS(X) };
enum psc_mpi_predefined_others { PSC_MPI_OTHERS(X) };
enum psc_mpi_predefined_types { PSC_MPI_TYPES(X) PSC_MPI_PAIRS(X) };
#undef X

enum psc_mpi_more_types {
    MPI_DATATYPE_NULL = 0x0c000000,
    MPI_LONG_LONG_INT = MPI_LONG_LONG,
    MPI_C_COMPLEX = MPI_C_FLOAT_COMPLEX
};

/* ---- constants ---- */

enum psc_mpi_constant {
    MPI_VERSION = 4,
    MPI_SUBVERSION = 1,
    MPI_UNDEFINED = -32766,
    MPI_PROC_NULL = -1,
    MPI_ANY_SOURCE = -2,
    MPI_ROOT = -3,
    MPI_ANY_TAG = -1,
    MPI_BSEND_OVERHEAD = 96,

    /* results of comparisons */
    MPI_IDENT = 0,
    MPI_CONGRUENT = 1,
    MPI_SIMILAR = 2,
    MPI_UNEQUAL = 3,

    MPI_THREAD_SINGLE = 0,
    MPI_THREAD_FUNNELED = 1,
    MPI_THREAD_SERIALIZED = 2,
    MPI_THREAD_MULTIPLE = 3,

    /* bytes of texts with the 0 at their end */
    MPI_MAX_PROCESSOR_NAME = 128,
    MPI_MAX_OBJECT_NAME = 128,
    MPI_MAX_DATAREP_STRING = 128,
    MPI_MAX_INFO_KEY = 255,
    MPI_MAX_INFO_VAL = 1024,
    MPI_MAX_STRINGTAG_LEN = 256,
    MPI_MAX_ERROR_STRING = 512,
    MPI_MAX_LIBRARY_VERSION_STRING = 8192,

    /* MPI_Comm_split_type */
    MPI_COMM_TYPE_SHARED = 1,
    MPI_COMM_TYPE_HW_GUIDED = 2,
    MPI_COMM_TYPE_HW_UNGUIDED = 3,
    MPI_COMM_TYPE_RESOURCE_GUIDED = 4,

    /* MPI_Topo_test; MPI_UNDEFINED without a topology */
    MPI_GRAPH = 1,
    MPI_CART = 2,
    MPI_DIST_GRAPH = 3
};

enum psc_mpi_type_constant {
    MPI_ORDER_C = 56,
    MPI_ORDER_FORTRAN = 57,
    MPI_DISTRIBUTE_BLOCK = 121,
    MPI_DISTRIBUTE_CYCLIC = 122,
    MPI_DISTRIBUTE_NONE = 123,
    MPI_DISTRIBUTE_DFLT_DARG = -49767,

    MPI_TYPECLASS_REAL = 1,
    MPI_TYPECLASS_INTEGER = 2,
    MPI_TYPECLASS_COMPLEX = 3,
    MPI_TYPECLASS_LOGICAL = 4,

    MPI_COMBINER_NAMED = 1,
    MPI_COMBINER_DUP = 2,
    MPI_COMBINER_CONTIGUOUS = 3,
    MPI_COMBINER_VECTOR = 4,
    MPI_COMBINER_HVECTOR = 6,
    MPI_COMBINER_INDEXED = 7,
    MPI_COMBINER_HINDEXED = 9,
    MPI_COMBINER_INDEXED_BLOCK = 10,
    MPI_COMBINER_STRUCT = 12,
    MPI_COMBINER_SUBARRAY = 13,
    MPI_COMBINER_DARRAY = 14,
    MPI_COMBINER_F90_REAL = 15,
    MPI_COMBINER_F90_COMPLEX = 16,
    MPI_COMBINER_F90_INTEGER = 17,
    MPI_COMBINER_RESIZED = 18,
    MPI_COMBINER_HINDEXED_BLOCK = 19,
    MPI_COMBINER_VALUE_INDEX = 20
};

/* Keys of attributes that communicators and windows have from the start. A
 * program's own keys have the origin PSC_MPI_MADE. */
enum psc_mpi_keyval {
    MPI_KEYVAL_INVALID = 0x24000000,
    MPI_TAG_UB = 0x64400001,
    MPI_HOST = 0x64400003,
    MPI_IO = 0x64400005,
    MPI_WTIME_IS_GLOBAL = 0x64400007,
    MPI_UNIVERSE_SIZE = 0x64400009,
    MPI_LASTUSEDCODE = 0x6440000b,
    MPI_APPNUM = 0x6440000d,
    MPI_WIN_BASE = 0x66000001,
    MPI_WIN_SIZE = 0x66000003,
    MPI_WIN_DISP_UNIT = 0x66000005,
    MPI_WIN_CREATE_FLAVOR = 0x66000007,
    MPI_WIN_MODEL = 0x66000009
};

enum psc_mpi_win_constant {
    MPI_WIN_FLAVOR_CREATE = 1,
    MPI_WIN_FLAVOR_ALLOCATE = 2,
    MPI_WIN_FLAVOR_DYNAMIC = 3,
    MPI_WIN_FLAVOR_SHARED = 4,
    MPI_WIN_SEPARATE = 1,
    MPI_WIN_UNIFIED = 2,
    MPI_LOCK_EXCLUSIVE = 234,
    MPI_LOCK_SHARED = 235,
    MPI_MODE_NOCHECK = 1024,
    MPI_MODE_NOSTORE = 2048,
    MPI_MODE_NOPUT = 4096,
    MPI_MODE_NOPRECEDE = 8192,
    MPI_MODE_NOSUCCEED = 16384
};

/* ---- errors ---- */

/* The classes of errors, and what MPI_Error_string says of each; a code that
 * this library adds has PSC_MPI_ERR_ADDED set. */
#define PSC_MPI_ERRORS(X)                                                      \
    X(MPI_SUCCESS, 0, "no error")                                              \
    X(MPI_ERR_BUFFER, 1, "invalid address of a buffer")                        \
    X(MPI_ERR_COUNT, 2, "invalid count")                                       \
    X(MPI_ERR_TYPE, 3, "invalid datatype")                                     \
    X(MPI_ERR_TAG, 4, "invalid tag")                                           \
    X(MPI_ERR_COMM, 5, "invalid communicator")                                 \
    X(MPI_ERR_RANK, 6, "invalid rank")                                         \
    X(MPI_ERR_ROOT, 7, "invalid root")                                         \
    X(MPI_ERR_GROUP, 8, "invalid group")                                       \
    X(MPI_ERR_OP, 9, "invalid operation")                                      \
    X(MPI_ERR_TOPOLOGY, 10, "invalid topology of a communicator")              \
    X(MPI_ERR_DIMS, 11, "invalid dimensions")                                  \
    X(MPI_ERR_ARG, 12, "invalid argument")                                     \
    X(MPI_ERR_UNKNOWN, 13, "unknown error")                                    \
    X(MPI_ERR_TRUNCATE, 14, "the message is longer than the buffer")           \
    X(MPI_ERR_OTHER, 15, "other error")                                        \
    X(MPI_ERR_INTERN, 16, "internal error")                                    \
    X(MPI_ERR_IN_STATUS, 17, "the error codes are in the statuses")            \
    X(MPI_ERR_PENDING, 18, "the request is pending")                           \
    X(MPI_ERR_REQUEST, 19, "invalid request")                                  \
    X(MPI_ERR_ACCESS, 20, "permission denied")                                 \
    X(MPI_ERR_AMODE, 21, "invalid mode of a file")                             \
    X(MPI_ERR_BAD_FILE, 22, "invalid name of a file")                          \
    X(MPI_ERR_CONVERSION, 23, "a conversion of data has failed")               \
    X(MPI_ERR_DUP_DATAREP, 24, "the data representation is known already")     \
    X(MPI_ERR_FILE_EXISTS, 25, "the file exists")                              \
    X(MPI_ERR_FILE_IN_USE, 26, "the file is in use")                           \
    X(MPI_ERR_FILE, 27, "invalid file")                                        \
    X(MPI_ERR_INFO, 28, "invalid info")                                        \
    X(MPI_ERR_INFO_KEY, 29, "invalid key of an info")                          \
    X(MPI_ERR_INFO_VALUE, 30, "invalid value of an info")                      \
    X(MPI_ERR_INFO_NOKEY, 31, "the info has no such key")                      \
    X(MPI_ERR_IO, 32, "input or output has failed")                            \
    X(MPI_ERR_NAME, 33, "the service's name is not published")                 \
    X(MPI_ERR_NO_MEM, 34, "out of memory")                                     \
    X(MPI_ERR_NOT_SAME, 35, "the ranks' arguments differ")                     \
    X(MPI_ERR_NO_SPACE, 36, "no space left")                                   \
    X(MPI_ERR_NO_SUCH_FILE, 37, "no such file")                                \
    X(MPI_ERR_PORT, 38, "invalid port")                                        \
    X(MPI_ERR_QUOTA, 39, "quota exceeded")                                     \
    X(MPI_ERR_READ_ONLY, 40, "the file is read-only")                          \
    X(MPI_ERR_SERVICE, 41, "invalid name of a service")                        \
    X(MPI_ERR_SPAWN, 42, "processes could not be started")                     \
    X(MPI_ERR_UNSUPPORTED_DATAREP, 43, "unsupported data representation")      \
    X(MPI_ERR_UNSUPPORTED_OPERATION, 44, "unsupported operation")              \
    X(MPI_ERR_WIN, 45, "invalid window")                                       \
    X(MPI_ERR_BASE, 46, "invalid base address")                                \
    X(MPI_ERR_LOCKTYPE, 47, "invalid type of a lock")                          \
    X(MPI_ERR_KEYVAL, 48, "invalid key of an attribute")                       \
    X(MPI_ERR_RMA_CONFLICT, 49, "conflicting accesses to a window")            \
    X(MPI_ERR_RMA_SYNC, 50, "wrong synchronisation of a window")               \
    X(MPI_ERR_SIZE, 51, "invalid size")                                        \
    X(MPI_ERR_DISP, 52, "invalid displacement")                                \
    X(MPI_ERR_ASSERT, 53, "invalid assertion")                                 \
    X(MPI_ERR_RMA_RANGE, 55, "outside of the window's memory")                 \
    X(MPI_ERR_RMA_ATTACH, 56, "memory cannot be attached")                     \
    X(MPI_ERR_RMA_SHARED, 57, "memory cannot be shared")                       \
    X(MPI_ERR_RMA_FLAVOR, 58, "wrong flavour of a window")                     \
    X(MPI_ERR_SESSION, 75, "invalid session")                                  \
    X(MPI_ERR_PROC_ABORTED, 76, "a process was aborted")                       \
    X(MPI_ERR_VALUE_TOO_LARGE, 77, "the value is too large to be stored")      \
    X(MPI_ERR_ERRHANDLER, 80, "invalid error handler")                         \
    X(MPIX_ERR_PROC_FAILED, 101, "a process has failed")                       \
    X(MPIX_ERR_PROC_FAILED_PENDING, 102, "pending; a process has failed")      \
    X(MPIX_ERR_REVOKED, 103, "the communicator was revoked")

#define X(name, number, text) name = number,
enum psc_mpi_error { PSC_MPI_ERRORS(X) };
#undef X

enum psc_mpi_error_constant {
    MPI_ERR_LASTCODE = 0x3fffffff,
    PSC_MPI_ERR_ADDED = 0x40000000,
    /* The code that mpi4py takes for "this library has no such function". */
    PSC_MPI_ABSENT = -1431655766
};

/* ---- functions of programs ---- */

typedef void MPI_User_function(void *in, void *inout, int *count,
                               MPI_Datatype *type);
typedef void MPI_User_function_c(void *in, void *inout, MPI_Count *count,
                                 MPI_Datatype *type);
typedef int MPI_Grequest_query_function(void *state, MPI_Status *status);
typedef int MPI_Grequest_free_function(void *state);
typedef int MPI_Grequest_cancel_function(void *state, int complete);
typedef int MPI_Comm_copy_attr_function(MPI_Comm comm, int keyval, void *state,
                                        void *value, void *copy, int *flag);
typedef int MPI_Comm_delete_attr_function(MPI_Comm comm, int keyval,
                                          void *value, void *state);
typedef int MPI_Type_copy_attr_function(MPI_Datatype type, int keyval,
                                        void *state, void *value, void *copy,
                                        int *flag);
typedef int MPI_Type_delete_attr_function(MPI_Datatype type, int keyval,
                                          void *value, void *state);
typedef int MPI_Win_copy_attr_function(MPI_Win win, int keyval, void *state,
                                       void *value, void *copy, int *flag);
typedef int MPI_Win_delete_attr_function(MPI_Win win, int keyval, void *value,
                                         void *state);
typedef void MPI_Comm_errhandler_function(MPI_Comm *comm, int *code, ...);
typedef void MPI_Win_errhandler_function(MPI_Win *win, int *code, ...);

/* The function that programs compiled by MPICH's mpicc have for
 * MPI_COMM_DUP_FN, MPI_TYPE_DUP_FN and MPI_WIN_DUP_FN. */
__attribute__((visibility("default"))) MPI_Comm_copy_attr_function MPIR_Dup_fn;
#define MPI_COMM_DUP_FN MPIR_Dup_fn
