#include "reduce.h"

typedef struct complex64 {
    float re, im;
} complex64_t;

typedef struct complex128 {
    double re, im;
} complex128_t;

/* ---- float16 ---- */

/* A float16 is a uint16_t: sign, 5 bits of exponent, 10 of mantissa. The
 * conversions have no branches, so that loops with them are vectorised. */

typedef union bits {
    uint32_t u;
    float f;
} bits_t;

static inline uint32_t half_select(bool condition, uint32_t yes, uint32_t no)
{
    uint32_t mask = 0 - (uint32_t)condition;

    return (yes & mask) | (no & ~mask);
}

static inline float half_float(uint16_t half)
{
    uint32_t exponent = half & 0x7c00u;
    uint32_t normal = ((half & 0x7fffu) << 13) + (112u << 23);
    bits_t value = {.f = (float)(int32_t)(half & 0x3ffu) * 0x1p-24f};

    value.u = half_select(exponent == 0, value.u, normal);
    value.u += half_select(exponent == 0x7c00u, 112u << 23, 0);
    value.u |= (half & 0x8000u) << 16;
    return value.f;
}

/* Rounds to nearest, ties to even. A NaN must be quiet, as that of every
 * operation is. */
static inline uint16_t half_of(float result)
{
    bits_t value = {.f = result};
    uint32_t magnitude = value.u & 0x7fffffffu;
    uint32_t odd = magnitude >> 13 & 1;
    uint32_t half = (magnitude - (112u << 23) + 0xfffu + odd) >> 13;
    uint32_t nan = half_select(magnitude > 255u << 23, magnitude >> 13, 0);
    bits_t small = {.u = magnitude};

    /* the sum is a number of units of 2^-24, the least float16, above 0.5 */
    small.f += 0.5f;
    half = half_select(magnitude < 113u << 23, small.u - (126u << 23), half);
    half = half_select(magnitude >= 143u << 23, 0x7c00u | (nan & 0x3ffu), half);
    return (uint16_t)(half | (value.u >> 16 & 0x8000u));
}

/* ---- operations ---- */

/* For each class of types: its operations. X(op, name, type, expression) gets
 * the expression of the result for the operands a and b. Signed integers are
 * combined as unsigned ones of the type `wide`, because they wrap. */

#define LOGICAL(X, name, type, is, from)                                       \
    X(LAND, name, type, from(type, is(a) & is(b)))                             \
    X(LOR, name, type, from(type, is(a) | is(b)))                              \
    X(LXOR, name, type, from(type, is(a) ^ is(b)))

#define BITWISE(X, name, type)                                                 \
    X(BAND, name, type, (type)(a & b))                                         \
    X(BOR, name, type, (type)(a | b))                                          \
    X(BXOR, name, type, (type)(a ^ b))

/* min and max keep a NaN, the first one of two. */
#define ORDER(X, name, type, less, more, isnan)                                \
    X(MIN, name, type, less || isnan ? a : b)                                  \
    X(MAX, name, type, more || isnan ? a : b)

#define NUMBER_IS(x) ((x) != 0)
#define NUMBER_FROM(type, value) ((type)(value))

#define BOOLEAN(X, name, type)                                                 \
    X(SUM, name, type, NUMBER_IS(a) | NUMBER_IS(b))                            \
    X(PROD, name, type, NUMBER_IS(a) & NUMBER_IS(b))                           \
    X(MIN, name, type, NUMBER_IS(a) & NUMBER_IS(b))                            \
    X(MAX, name, type, NUMBER_IS(a) | NUMBER_IS(b))                            \
    LOGICAL(X, name, type, NUMBER_IS, NUMBER_FROM)                             \
    X(BAND, name, type, NUMBER_IS(a) & NUMBER_IS(b))                           \
    X(BOR, name, type, NUMBER_IS(a) | NUMBER_IS(b))                            \
    X(BXOR, name, type, NUMBER_IS(a) ^ NUMBER_IS(b))

#define INTEGER(X, name, type, wide)                                           \
    X(SUM, name, type, (type)((wide)a + (wide)b))                              \
    X(PROD, name, type, (type)((wide)a * (wide)b))                             \
    ORDER(X, name, type, (a < b), (a > b), false)                              \
    LOGICAL(X, name, type, NUMBER_IS, NUMBER_FROM)                             \
    BITWISE(X, name, type)

#define HALF_IS(x) (((x) & 0x7fffu) != 0)
#define HALF_FROM(type, value) ((type)((value) ? 0x3c00u : 0u))

#define HALF(X, name, type)                                                    \
    X(SUM, name, type, half_of(half_float(a) + half_float(b)))                 \
    X(PROD, name, type, half_of(half_float(a) * half_float(b)))                \
    ORDER(X, name, type, half_float(a) <= half_float(b),                       \
          half_float(a) >= half_float(b), (a & 0x7fffu) > 0x7c00u)             \
    LOGICAL(X, name, type, HALF_IS, HALF_FROM)

#define FLOAT(X, name, type)                                                   \
    X(SUM, name, type, a + b)                                                  \
    X(PROD, name, type, (a * b))                                               \
    ORDER(X, name, type, (a < b), (a > b), a != a)                             \
    LOGICAL(X, name, type, NUMBER_IS, NUMBER_FROM)

#define COMPLEX_IS(x) (((x).re != 0) | ((x).im != 0))
#define COMPLEX_FROM(type, value) ((type){.re = (value)})

#define COMPLEX(X, name, type)                                                 \
    X(SUM, name, type, ((type){a.re + b.re, a.im + b.im}))                     \
    X(PROD, name, type,                                                        \
      ((type){a.re * b.re - a.im * b.im, a.re * b.im + a.im * b.re}))          \
    LOGICAL(X, name, type, COMPLEX_IS, COMPLEX_FROM)

#define REDUCTIONS(X)                                                          \
    BOOLEAN(X, BOOL, uint8_t)                                                  \
    INTEGER(X, INT8, int8_t, uint32_t)                                         \
    INTEGER(X, INT16, int16_t, uint32_t)                                       \
    INTEGER(X, INT32, int32_t, uint32_t)                                       \
    INTEGER(X, INT64, int64_t, uint64_t)                                       \
    INTEGER(X, UINT8, uint8_t, uint32_t)                                       \
    INTEGER(X, UINT16, uint16_t, uint32_t)                                     \
    INTEGER(X, UINT32, uint32_t, uint32_t)                                     \
    INTEGER(X, UINT64, uint64_t, uint64_t)                                     \
    HALF(X, FLOAT16, uint16_t)                                                 \
    FLOAT(X, FLOAT32, float)                                                   \
    FLOAT(X, FLOAT64, double)                                                  \
    COMPLEX(X, COMPLEX64, complex64_t)                                         \
    COMPLEX(X, COMPLEX128, complex128_t)

/* ---- the functions and their table ---- */

#define REDUCE(op, name, type, expression)                                     \
    static void reduce_##op##_##name(const void *in, void *inout, uint64_t n)  \
    {                                                                          \
        const type *restrict from = in;                                        \
        type *restrict to = inout;                                             \
                                                                               \
        for (uint64_t i = 0; i < n; i++) {                                     \
            const type a = from[i], b = to[i];                                 \
                                                                               \
            to[i] = expression;                                                \
        }                                                                      \
    }

REDUCTIONS(REDUCE)

#define ENTRY(op, name, type, expression)                                      \
    [PSC_OP_##op][PSC_TYPE_##name] = reduce_##op##_##name,

static const psc_reduce_t reductions[PSC_OP_COUNT][PSC_TYPE_COUNT] = {
    REDUCTIONS(ENTRY)};

psc_reduce_t psc_reduction(psc_op_t op, psc_type_t type)
{
    if ((unsigned)op >= PSC_OP_COUNT || (unsigned)type >= PSC_TYPE_COUNT)
        return NULL;
    return reductions[op][type];
}

size_t psc_type_size(psc_type_t type)
{
    static const uint8_t sizes[PSC_TYPE_COUNT] = {
        [PSC_TYPE_BOOL] = 1,      [PSC_TYPE_INT8] = 1,
        [PSC_TYPE_INT16] = 2,     [PSC_TYPE_INT32] = 4,
        [PSC_TYPE_INT64] = 8,     [PSC_TYPE_UINT8] = 1,
        [PSC_TYPE_UINT16] = 2,    [PSC_TYPE_UINT32] = 4,
        [PSC_TYPE_UINT64] = 8,    [PSC_TYPE_FLOAT16] = 2,
        [PSC_TYPE_FLOAT32] = 4,   [PSC_TYPE_FLOAT64] = 8,
        [PSC_TYPE_COMPLEX64] = 8, [PSC_TYPE_COMPLEX128] = 16};

    return sizes[type];
}

bool psc_reduction_slow(psc_op_t op, psc_type_t type)
{
    return type == PSC_TYPE_FLOAT16 ||
           (op == PSC_OP_PROD &&
            (type == PSC_TYPE_COMPLEX64 || type == PSC_TYPE_COMPLEX128));
}
